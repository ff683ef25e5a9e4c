// The webhooks of Gardener's own gardener-extension-admission-local, which tells its version. Its command reads the token of
// a Pod, for certificates in Secrets of the runtime cluster; this one has neither a Pod nor a runtime cluster.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/component-base/version"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"

	extensionscmdcontroller "github.com/gardener/gardener/extensions/pkg/controller/cmd"
	extensionscmdwebhook "github.com/gardener/gardener/extensions/pkg/webhook/cmd"
	gardencoreinstall "github.com/gardener/gardener/pkg/apis/core/install"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	securityinstall "github.com/gardener/gardener/pkg/apis/security/install"
	admissioncmd "github.com/gardener/gardener/pkg/provider-local/admission/cmd"
	localinstall "github.com/gardener/gardener/pkg/provider-local/apis/local/install"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Println(version.Get().GitVersion)
		return
	}
	// It would log each object that it refuses.
	logf.SetLogger(logr.Discard())
	if err := run(signals.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var (
		rest     = &extensionscmdcontroller.RESTOptions{}
		managers = &extensionscmdcontroller.ManagerOptions{}
		webhooks = extensionscmdwebhook.NewAddToManagerOptions("admission-local", "", nil, nil,
			&extensionscmdwebhook.ServerOptions{}, admissioncmd.GardenWebhookSwitchOptions())
		options = extensionscmdcontroller.NewOptionAggregator(rest, managers, webhooks)
		flags   = pflag.NewFlagSet("admission-local", pflag.ContinueOnError)
	)
	options.AddFlags(flags)
	if err := flags.Parse(os.Args[1:]); err != nil {
		return err
	}
	if err := options.Complete(); err != nil {
		return err
	}
	config, settings := rest.Completed().Config, managers.Completed().Options()
	// Definitions stand in for gardener-apiserver, and take no protobuf.
	config.ContentType = "application/json"
	config.QPS, config.Burst = 1000, 1000
	// A parent is seen as soon as it is there.
	settings.Client.Cache = &client.CacheOptions{DisableFor: []client.Object{&gardencorev1beta1.CloudProfile{}}}
	gardencoreinstall.Install(scheme.Scheme)
	securityinstall.Install(scheme.Scheme)
	if err := localinstall.AddToScheme(scheme.Scheme); err != nil {
		return err
	}
	made, err := manager.New(config, settings)
	if err != nil {
		return err
	}
	if _, err := webhooks.Completed().AddToManager(ctx, made, nil); err != nil {
		return err
	}
	if err := made.AddReadyzCheck("webhook-server", made.GetWebhookServer().StartedChecker()); err != nil {
		return err
	}
	return made.Start(ctx)
}
