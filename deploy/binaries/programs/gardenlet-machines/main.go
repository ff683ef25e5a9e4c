// A client of OperatingSystemConfigs: gardenlet's own code has those of one worker pool reconciled, and makes what the
// node agents of its machines need in the Shoot.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/Masterminds/semver/v3"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener/imagevector"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/component/extensions/operatingsystemconfig"
	"github.com/gardener/gardener/pkg/component/extensions/operatingsystemconfig/original/components/nodeagent"
	gardenletfeatures "github.com/gardener/gardener/pkg/gardenlet/features"
	imagevectorutils "github.com/gardener/gardener/pkg/utils/imagevector"
	secretsutils "github.com/gardener/gardener/pkg/utils/secrets"
	fakesecretsmanager "github.com/gardener/gardener/pkg/utils/secrets/manager/fake"
)

const (
	interval = 200 * time.Millisecond
	// How long an error may last before it is told; gardenlet bears 30 s.
	severe  = time.Second
	timeout = 2 * time.Minute
)

// What it takes to configure the machines of a pool.
type values struct {
	Server            string                   `json:"server"`
	KubernetesVersion string                   `json:"kubernetesVersion"`
	DNS               []string                 `json:"dns"`
	Worker            gardencorev1beta1.Worker `json:"worker"`
}

// What came of it.
type result struct {
	// The Secret with the user data, in the Shoot's namespace.
	UserData string `json:"userData"`
	// Objects for the Shoot: the Secret for the node agent, and the rights of machines that join.
	Objects []client.Object `json:"objects"`
}

func main() {
	if len(os.Args) < 3 {
		fmt.Println(version.Get().GitVersion, "usage: gardenlet-machines KUBECONFIG NAMESPACE < VALUES")
		return
	}
	gardenletfeatures.RegisterFeatureGates()
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run reads the values from standard input, and the Shoot's authorities from the Secrets `ca` and `ca-kubelet`.
func run(ctx context.Context, kubeconfig, namespace string) error {
	var given values
	if err := json.NewDecoder(os.Stdin).Decode(&given); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, extensionsv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	seed, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	images, err := findImages()
	if err != nil {
		return err
	}
	secrets := fakesecretsmanager.New(seed, namespace)
	authority, found := secrets.Get(v1beta1constants.SecretNameCACluster)
	if !found {
		return fmt.Errorf("there is no Secret %s", v1beta1constants.SecretNameCACluster)
	}
	configs := operatingsystemconfig.New(
		logr.Discard(), seed, secrets,
		&operatingsystemconfig.Values{
			Namespace:         namespace,
			KubernetesVersion: semver.MustParse(given.KubernetesVersion),
			Workers:           []gardencorev1beta1.Worker{given.Worker},
			InitValues:        operatingsystemconfig.InitValues{APIServerURL: given.Server},
			OriginalValues: operatingsystemconfig.OriginalValues{
				CABundle:               string(authority.Data[secretsutils.DataKeyCertificateBundle]),
				ClusterDNSAddresses:    given.DNS,
				ClusterDomain:          gardencorev1beta1.DefaultDomain,
				Images:                 images,
				KubeProxyEnabled:       true,
				NodeMonitorGracePeriod: metav1.Duration{Duration: 40 * time.Second},
				PrimaryIPFamily:        gardencorev1beta1.IPFamilyIPv4,
			},
		},
		interval, severe, timeout,
	)
	if err := configs.Deploy(ctx); err != nil {
		return err
	}
	if err := configs.Wait(ctx); err != nil {
		return err
	}
	return print(ctx, seed, given.Worker.Name, configs.WorkerPoolNameToOperatingSystemConfigsMap()[given.Worker.Name])
}

func findImages() (map[string]*imagevectorutils.Image, error) {
	found := map[string]*imagevectorutils.Image{}
	for _, name := range []string{
		imagevector.ContainerImageNamePauseContainer, imagevector.ContainerImageNameGardenerNodeAgent,
	} {
		image, err := imagevector.Containers().FindImage(name)
		if err != nil {
			return nil, err
		}
		image.WithOptionalTag(version.Get().GitVersion)
		found[name] = image
	}
	return found, nil
}

func print(ctx context.Context, seed client.Client, pool string, made *operatingsystemconfig.OperatingSystemConfigs) error {
	secret, err := nodeagent.OperatingSystemConfigSecret(
		ctx, seed, made.Original.Object, made.Original.GardenerNodeAgentSecretName, pool, true,
	)
	if err != nil {
		return err
	}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	found := result{UserData: *made.Init.SecretName, Objects: []client.Object{secret}}
	for _, binding := range nodeagent.GetCertificateSigningRequestClusterRoleBindings() {
		binding.GetObjectKind().SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"))
		found.Objects = append(found.Objects, binding)
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}
