// Empty, in place of a module that only examples of etcd-druid need.
module github.com/gardener/etcd-druid/client

go 1.26
