// Runs an Argo CD health check as Argo CD does: gopher-lua with the base, package and table libraries only.
//
// usage: lua SCRIPT < OBJECT.json    prints what the script returns, as JSON
package main

import (
	"fmt"
	"io"
	"os"

	lua "github.com/yuin/gopher-lua"
	luajson "layeh.com/gopher-json"
)

func run(script string, object []byte) ([]byte, error) {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for _, library := range []struct {
		name string
		open lua.LGFunction
	}{
		{lua.LoadLibName, lua.OpenPackage},
		{lua.BaseLibName, lua.OpenBase},
		{lua.TabLibName, lua.OpenTable},
	} {
		err := state.CallByParam(lua.P{Fn: state.NewFunction(library.open), Protect: true}, lua.LString(library.name))
		if err != nil {
			return nil, err
		}
	}
	value, err := luajson.Decode(state, object)
	if err != nil {
		return nil, err
	}
	state.SetGlobal("obj", value)
	if err := state.DoFile(script); err != nil {
		return nil, err
	}
	return luajson.Encode(state.Get(-1))
}

func main() {
	object, err := io.ReadAll(os.Stdin)
	if err == nil {
		var answer []byte
		if answer, err = run(os.Args[1], object); err == nil {
			fmt.Println(string(answer))
			return
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
