// The server in the Pods of tests and of the demo. It needs nothing but Go itself.
module windowbox/binaries/windowbox-echo

go 1.22
