// Empty, in place of a module that nothing of what is built here needs.
module github.com/gardener/terminal-controller-manager

go 1.26
