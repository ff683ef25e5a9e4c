package main

import (
	"context"

	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	operatorconfigv1alpha1 "github.com/gardener/gardener/pkg/apis/config/operator/v1alpha1"
	"github.com/gardener/gardener/pkg/client/kubernetes"
	"github.com/gardener/gardener/pkg/client/kubernetes/clientmap"
	"github.com/gardener/gardener/pkg/operator/controller/extension/extension"
	requiredruntime "github.com/gardener/gardener/pkg/operator/controller/extension/required/runtime"
)

// Runs the controllers of Extensions until the process ends.
func operator(ctx context.Context, config *rest.Config, cluster kubernetes.Interface, registry charts) error {
	mgr, err := manager.New(config, manager.Options{
		Scheme: everything(), Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	settings := operatorconfigv1alpha1.OperatorConfiguration{}
	settings.Controllers.Extension.ConcurrentSyncs = ptr.To(1)
	settings.Controllers.ExtensionRequiredRuntime.ConcurrentSyncs = ptr.To(1)
	if err := (&extension.Reconciler{
		Config: settings, GardenClientMap: always{cluster}, HelmRegistry: registry,
	}).AddToManager(mgr); err != nil {
		return err
	}
	if err := (&requiredruntime.Reconciler{
		Config: settings.Controllers.ExtensionRequiredRuntime,
	}).AddToManager(mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// The virtual garden is the same cluster.
type always struct{ kubernetes.Interface }

func (one always) GetClient(context.Context, clientmap.ClientSetKey) (kubernetes.Interface, error) {
	return one.Interface, nil
}

func (always) InvalidateClient(clientmap.ClientSetKey) error { return nil }

func (always) Start(context.Context) error { return nil }
