// A client of extensions: gardenlet's own code creates, waits for, migrates, restores and deletes a ControlPlane, and
// makes the conditions of a Shoot.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/component/extensions/controlplane"
)

const (
	interval = 200 * time.Millisecond
	// How long an error may last before it is told; gardenlet bears 30 s.
	severe  = time.Second
	timeout = 2 * time.Minute
)

func main() {
	if len(os.Args) < 4 {
		fmt.Println(version.Get().GitVersion, "usage: gardenlet-client KUBECONFIG NAMESPACE STEP...")
		return
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(kubeconfig, namespace string, names []string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		extensionsv1alpha1.AddToScheme, resourcesv1alpha1.AddToScheme, coordinationv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	seed, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	values := &controlplane.Values{Namespace: namespace, Name: "local", Type: "local", Region: "local"}
	plane := controlplane.New(logr.Discard(), seed, values, interval, severe, timeout)
	steps := map[string]func(context.Context) error{
		"deploy":       plane.Deploy,
		"wait":         plane.Wait,
		"migrate":      plane.Migrate,
		"wait-migrate": plane.WaitMigrate,
		"destroy":      plane.Destroy,
		"wait-cleanup": plane.WaitCleanup,
		"care":         func(ctx context.Context) error { return care(ctx, seed, namespace) },
		"restore": func(ctx context.Context) error {
			return plane.Restore(ctx, &gardencorev1beta1.ShootState{})
		},
	}
	for _, name := range names {
		step, known := steps[name]
		if !known {
			return fmt.Errorf("%q is no step", name)
		}
		if err := step(context.Background()); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
