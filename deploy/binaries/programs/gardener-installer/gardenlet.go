package main

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	"github.com/gardener/gardener/pkg/client/kubernetes"
	"github.com/gardener/gardener/pkg/gardenlet/controller/controllerinstallation/controllerinstallation"
	gardenletfeatures "github.com/gardener/gardener/pkg/gardenlet/features"
)

// Reconciles all ControllerInstallations once.
func gardenlet(ctx context.Context, config *rest.Config, cluster kubernetes.Interface, registry charts) error {
	gardenletfeatures.RegisterFeatureGates()
	reconciler := &controllerinstallation.Reconciler{
		GardenClient:          cluster.Client(),
		GardenConfig:          config,
		SeedClientSet:         cluster,
		HelmRegistry:          registry,
		Clock:                 clock.RealClock{},
		Identity:              &gardencorev1beta1.Gardener{Version: "v1.150.0"},
		GardenClusterIdentity: "garden",
		GardenNamespace:       "garden",
	}
	installations := &gardencorev1beta1.ControllerInstallationList{}
	if err := cluster.Client().List(ctx, installations); err != nil {
		return err
	}
	for _, one := range installations.Items {
		request := reconcile.Request{NamespacedName: types.NamespacedName{Name: one.Name}}
		if _, err := reconciler.Reconcile(ctx, request); err != nil {
			return err
		}
	}
	return nil
}
