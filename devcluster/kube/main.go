// One binary with the real Kubernetes components, chosen by the first argument.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	kcm "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	sched "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: kube etcd|apiserver|controller-manager|scheduler [flags]")
		os.Exit(2)
	}
	name, rest := os.Args[1], os.Args[2:]
	var cmd *cobra.Command
	switch name {
	case "etcd":
		os.Args = append([]string{"etcd"}, rest...)
		etcdmain.Main(os.Args)
		return
	case "apiserver":
		cmd = apiserver.NewAPIServerCommand()
	case "controller-manager":
		cmd = kcm.NewControllerManagerCommand()
	case "scheduler":
		cmd = sched.NewSchedulerCommand()
	case "kubelet":
		cmd = kubelet.NewKubeletCommand(context.Background())
	case "kubectl":
		cmd = kubectl.NewDefaultKubectlCommand()
	case "proxy":
		cmd = proxy.NewProxyCommand()
	default:
		os.Exit(2)
	}
	cmd.SetArgs(rest)
	os.Args = append([]string{"kube-" + name}, rest...)
	os.Exit(cli.Run(cmd))
}
