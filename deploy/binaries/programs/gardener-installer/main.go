// How Gardener installs an extension: gardenlet's own controller of ControllerInstallations, and gardener-operator's own
// controllers of Extensions. Their charts are files, since there is no registry, and all clusters are one.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/version"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	gardencorev1 "github.com/gardener/gardener/pkg/apis/core/v1"
	"github.com/gardener/gardener/pkg/client/kubernetes"
	operatorclient "github.com/gardener/gardener/pkg/operator/client"
)

func main() {
	if len(os.Args) != 5 {
		fmt.Println(version.Get().GitVersion, "usage: gardener-installer gardenlet|operator KUBECONFIG CHARTS MANIFESTS")
		return
	}
	logf.SetLogger(logr.Discard())
	if err := run(context.Background(), os.Args[1], os.Args[2], charts(os.Args[3]), os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, who, kubeconfig string, registry charts, manifests string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	// Definitions stand in for gardener-apiserver, and take no protobuf.
	config.ContentType = "application/json"
	cluster, err := kubernetes.NewWithConfig(
		kubernetes.WithRESTConfig(config), kubernetes.WithDisabledCachedClient(),
		kubernetes.WithClientOptions(client.Options{Scheme: everything()}),
	)
	if err != nil {
		return err
	}
	objects, err := read(manifests)
	if err != nil {
		return err
	}
	for _, one := range objects {
		if err := valid(one); err != nil {
			return err
		}
		if err := cluster.Client().Create(ctx, one); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	switch who {
	case "gardenlet":
		return gardenlet(ctx, config, cluster, registry)
	case "operator":
		return operator(ctx, config, cluster, registry)
	}
	return fmt.Errorf("%q is no part of Gardener", who)
}

// A folder with charts, by what their references end with: NAME-VERSION.tgz.
type charts string

func (folder charts) Pull(_ context.Context, repository *gardencorev1.OCIRepository) ([]byte, error) {
	name := strings.ReplaceAll(path.Base(repository.GetURL()), ":", "-")
	return os.ReadFile(filepath.Join(string(folder), name+".tgz"))
}

// The objects of a file, with Gardener's defaults. What its types do not know is an error.
func read(name string) ([]client.Object, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	scheme := everything()
	options := json.SerializerOptions{Yaml: true, Strict: true}
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, options)
	documents := yaml.NewDocumentDecoder(file)
	defer documents.Close()
	var found []client.Object
	buffer := make([]byte, 1<<20)
	for {
		length, err := documents.Read(buffer)
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		object, _, err := decoder.Decode(buffer[:length], nil, nil)
		if err != nil {
			return nil, err
		}
		scheme.Default(object)
		found = append(found, object.(client.Object))
	}
}

// All kinds of gardens, seeds and runtime clusters.
func everything() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		kubernetes.AddSeedSchemeToScheme, kubernetes.AddGardenSchemeToScheme, operatorclient.AddRuntimeSchemeToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return scheme
}
