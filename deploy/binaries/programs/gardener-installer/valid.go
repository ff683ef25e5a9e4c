package main

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corevalidation "github.com/gardener/gardener/pkg/api/core/validation"
	"github.com/gardener/gardener/pkg/apis/core"
	gardencorev1 "github.com/gardener/gardener/pkg/apis/core/v1"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	"github.com/gardener/gardener/pkg/client/kubernetes"
)

// What gardener-apiserver has against an object.
func valid(object client.Object) error {
	switch one := object.(type) {
	case *gardencorev1beta1.ControllerRegistration:
		internal := &core.ControllerRegistration{}
		if err := kubernetes.GardenScheme.Convert(one, internal, nil); err != nil {
			return err
		}
		return all(corevalidation.ValidateControllerRegistration(internal))
	case *gardencorev1.ControllerDeployment:
		internal := &core.ControllerDeployment{}
		if err := kubernetes.GardenScheme.Convert(one, internal, nil); err != nil {
			return err
		}
		return all(corevalidation.ValidateControllerDeployment(internal))
	}
	return nil
}

func all(errors field.ErrorList) error {
	if len(errors) == 0 {
		return nil
	}
	return errors.ToAggregate()
}
