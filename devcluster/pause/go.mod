module cosyvoice.io/devcluster/pause

go 1.24.0
