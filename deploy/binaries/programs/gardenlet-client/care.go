package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	apiextensions "github.com/gardener/gardener/pkg/api/extensions"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/extensions"
	"github.com/gardener/gardener/pkg/utils/kubernetes/health/checker"
)

// Where tests have the heartbeat: the namespace of the ControllerInstallation elsewhere.
const garden = "garden"

// Prints the conditions of the Shoot, made by gardenlet's health checker of what extensions and ManagedResources say.
func care(ctx context.Context, seed client.Client, namespace string) error {
	said, err := contributions(ctx, seed, namespace)
	if err != nil {
		return err
	}
	bundles := &resourcesv1alpha1.ManagedResourceList{}
	if err := seed.List(ctx, bundles, client.InNamespace(namespace)); err != nil {
		return err
	}
	health := checker.NewHealthChecker(logr.Discard(), seed, clock.RealClock{})
	for _, of := range []gardencorev1beta1.ConditionType{
		gardencorev1beta1.ShootControlPlaneHealthy, gardencorev1beta1.ShootEveryNodeReady,
		gardencorev1beta1.ShootSystemComponentsHealthy,
	} {
		condition := gardencorev1beta1.Condition{Type: of, Status: gardencorev1beta1.ConditionTrue}
		found := health.CheckExtensionCondition(condition, said[of], &metav1.Duration{Duration: 5 * time.Minute})
		if found == nil {
			found = health.CheckManagedResources(condition, bundles.Items, feeds(of), nil, nil)
		}
		if found == nil {
			found = &condition
		}
		fmt.Println(found.Type, found.Status, found.Reason, found.Message)
	}
	return nil
}

// Whether a ManagedResource feeds into this condition, as in gardenlet's checks of control planes and system components.
func feeds(into gardencorev1beta1.ConditionType) func(resourcesv1alpha1.ManagedResource) bool {
	return func(bundle resourcesv1alpha1.ManagedResource) bool {
		if of := bundle.Labels["care.gardener.cloud/condition-type"]; of != "" {
			return of == string(into)
		}
		if bundle.Spec.Class != nil {
			return into == gardencorev1beta1.ShootControlPlaneHealthy
		}
		return into == gardencorev1beta1.ShootSystemComponentsHealthy
	}
}

func contributions(ctx context.Context, seed client.Client, namespace string) (
	map[gardencorev1beta1.ConditionType][]checker.ExtensionCondition, error,
) {
	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: garden, Name: extensions.HeartBeatResourceName}
	if err := client.IgnoreNotFound(seed.Get(ctx, key, lease)); err != nil {
		return nil, err
	}
	found := map[gardencorev1beta1.ConditionType][]checker.ExtensionCondition{}
	for _, list := range []client.ObjectList{
		&extensionsv1alpha1.ExtensionList{}, &extensionsv1alpha1.ControlPlaneList{},
		&extensionsv1alpha1.InfrastructureList{}, &extensionsv1alpha1.OperatingSystemConfigList{},
		&extensionsv1alpha1.WorkerList{},
	} {
		if err := seed.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, err
		}
		if err := meta.EachListItem(list, func(object runtime.Object) error {
			accessor, err := apiextensions.Accessor(object)
			if err != nil {
				return err
			}
			kind, err := apiutil.GVKForObject(object, seed.Scheme())
			if err != nil {
				return err
			}
			for _, one := range accessor.GetExtensionStatus().GetConditions() {
				found[one.Type] = append(found[one.Type], checker.ExtensionCondition{
					Condition:          one,
					ExtensionType:      kind.Kind,
					ExtensionName:      accessor.GetName(),
					ExtensionNamespace: accessor.GetNamespace(),
					LastHeartbeatTime:  lease.Spec.RenewTime,
				})
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return found, nil
}
