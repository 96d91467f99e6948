"""The main job as a newcomer sees it: speech through a GPU shortage, on a real Kubernetes."""
