// Gardener's own provider-local, which tells its version.
package main

import (
	"fmt"
	"os"

	"k8s.io/component-base/version"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"

	"github.com/gardener/gardener/cmd/gardener-extension-provider-local/app"
	"github.com/gardener/gardener/pkg/logger"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Println(version.Get().GitVersion)
		return
	}
	logf.SetLogger(logger.MustNewZapLogger(logger.InfoLevel, logger.FormatText))
	if err := app.NewControllerManagerCommand(signals.SetupSignalHandler()).Execute(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
