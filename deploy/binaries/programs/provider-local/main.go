// Gardener's own provider-local, which tells its version, and whose requests can be unlimited.
package main

import (
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/component-base/version"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"

	"github.com/gardener/gardener/cmd/gardener-extension-provider-local/app"
	extensionscmdcontroller "github.com/gardener/gardener/extensions/pkg/controller/cmd"
	"github.com/gardener/gardener/pkg/logger"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Println(version.Get().GitVersion)
		return
	}
	logf.SetLogger(logger.MustNewZapLogger(logger.InfoLevel, logger.FormatText))
	command := app.NewControllerManagerCommand(signals.SetupSignalHandler())
	// Gardener's own program has no such flag, and client-go's default of 5 requests a second for each kind.
	qps := command.Flags().Float32("kube-api-qps", 0, "Requests a second for each kind; negative: no limit.")
	build := extensionscmdcontroller.BuildConfigFromFlags
	extensionscmdcontroller.BuildConfigFromFlags = func(master, kubeconfig string) (*rest.Config, error) {
		config, err := build(master, kubeconfig)
		if err == nil {
			config.QPS = *qps
		}
		return config, err
	}
	if err := command.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
