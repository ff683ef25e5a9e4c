// Gardener's resource manager with those of its controllers that the sandbox uses: ManagedResources, their health,
// garbage collection, and tokens. The controllers are Gardener's own code; so are the schemes, the defaults and the
// validation of the configuration. What is left out, foremost its webhooks and the approver of kubelets' certificates,
// would need another 430 packages, and two minutes of CPU to compile them.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	componentbaseconfigv1alpha1 "k8s.io/component-base/config/v1alpha1"
	"k8s.io/component-base/version/verflag"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	controllerconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/gardener/gardener/cmd/utils/initrun"
	"github.com/gardener/gardener/pkg/api/config/resourcemanager/v1alpha1/validation"
	"github.com/gardener/gardener/pkg/api/indexer"
	config "github.com/gardener/gardener/pkg/apis/config/resourcemanager/v1alpha1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/controller/tokenrequestor"
	"github.com/gardener/gardener/pkg/controllerutils"
	gardenerhealthz "github.com/gardener/gardener/pkg/healthz"
	"github.com/gardener/gardener/pkg/resourcemanager/bootstrappers"
	resourcemanagerclient "github.com/gardener/gardener/pkg/resourcemanager/client"
	"github.com/gardener/gardener/pkg/resourcemanager/controller/garbagecollector"
	"github.com/gardener/gardener/pkg/resourcemanager/controller/health"
	"github.com/gardener/gardener/pkg/resourcemanager/controller/managedresource"
	resourcemanagerpredicate "github.com/gardener/gardener/pkg/resourcemanager/predicate"
)

const name = "gardener-resource-manager"

type configuration = config.ResourceManagerConfiguration

func main() {
	given := &options{}
	command := &cobra.Command{
		Use:          name,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(command *cobra.Command, _ []string) error {
			log, err := initrun.InitRun(command, given, name)
			if err != nil {
				return err
			}
			return run(command.Context(), log, &given.read)
		},
	}
	verflag.AddFlags(command.Flags())
	command.Flags().StringVar(&given.file, "config", "", "file with a ResourceManagerConfiguration")
	if err := command.ExecuteContext(signals.SetupSignalHandler()); err != nil {
		os.Exit(1)
	}
}

type options struct {
	file string
	read configuration
}

func (o *options) Complete() error {
	data, err := os.ReadFile(o.file)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := config.AddToScheme(scheme); err != nil {
		return err
	}
	return runtime.DecodeInto(serializer.NewCodecFactory(scheme).UniversalDecoder(), data, &o.read)
}

// Validate refuses what this program has left out, rather than to do without in silence.
func (o *options) Validate() error {
	if errs := validation.ValidateResourceManagerConfiguration(&o.read); len(errs) > 0 {
		return errs.ToAggregate()
	}
	if o.read.TargetClientConnection == nil {
		return errors.New("targetClientConnection is missing")
	}
	controllers := o.read.Controllers
	if controllers.CSRApprover.Enabled || controllers.NetworkPolicy.Enabled || controllers.IstioClusterConfiguration.Enabled {
		return errors.New("the approver of certificates and the controllers of networks are not part of this program")
	}
	return nil
}

func (o *options) LogConfig() (string, string) {
	return o.read.LogLevel, o.read.LogFormat
}

func run(ctx context.Context, log logr.Logger, cfg *configuration) error {
	source, err := connection(&cfg.SourceClientConnection.ClientConnectionConfiguration)
	if err != nil {
		return err
	}
	mgr, err := manager.New(source, managerOptions(log, cfg))
	if err != nil {
		return err
	}
	target, err := targetCluster(log, cfg)
	if err != nil {
		return err
	}
	if err := mgr.Add(target); err != nil {
		return err
	}
	for name, read := range map[string]cache.Cache{"source": mgr.GetCache(), "target": target.GetCache()} {
		if err := mgr.AddReadyzCheck(name+"-informer-sync", gardenerhealthz.NewCacheSyncHealthz(read)); err != nil {
			return err
		}
	}
	if err := indexer.AddPodNodeName(ctx, target.GetFieldIndexer()); err != nil {
		return err
	}
	controllers := func(context.Context) error { return addControllers(ctx, mgr, target, cfg) }
	identity := &bootstrappers.IdentityDeterminer{Logger: log, SourceClient: mgr.GetClient(), Config: cfg}
	if err := mgr.Add(&controllerutils.ControlledRunner{
		Manager:            mgr,
		BootstrapRunnables: []manager.Runnable{identity},
		ActualRunnables:    []manager.Runnable{manager.RunnableFunc(controllers)},
	}); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func managerOptions(log logr.Logger, cfg *configuration) manager.Options {
	return manager.Options{
		Logger:                        log,
		Scheme:                        resourcemanagerclient.SourceScheme,
		GracefulShutdownTimeout:       ptr.To(5 * time.Second),
		Cache:                         cache.Options{DefaultNamespaces: namespaces(cfg.SourceClientConnection.Namespaces), SyncPeriod: &cfg.SourceClientConnection.CacheResyncPeriod.Duration},
		Controller:                    controllerconfig.Controller{CacheSyncTimeout: cfg.Controllers.CacheSyncTimeout.Duration},
		HealthProbeBindAddress:        net.JoinHostPort(cfg.Server.HealthProbes.BindAddress, strconv.Itoa(cfg.Server.HealthProbes.Port)),
		Metrics:                       metricsserver.Options{BindAddress: net.JoinHostPort(cfg.Server.Metrics.BindAddress, strconv.Itoa(cfg.Server.Metrics.Port))},
		LeaderElection:                *cfg.LeaderElection.LeaderElect,
		LeaderElectionResourceLock:    cfg.LeaderElection.ResourceLock,
		LeaderElectionID:              cfg.LeaderElection.ResourceName,
		LeaderElectionNamespace:       cfg.LeaderElection.ResourceNamespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &cfg.LeaderElection.LeaseDuration.Duration,
		RenewDeadline:                 &cfg.LeaderElection.RenewDeadline.Duration,
		RetryPeriod:                   &cfg.LeaderElection.RetryPeriod.Duration,
	}
}

func targetCluster(log logr.Logger, cfg *configuration) (cluster.Cluster, error) {
	target, err := connection(&cfg.TargetClientConnection.ClientConnectionConfiguration)
	if err != nil {
		return nil, err
	}
	return cluster.New(target, func(opts *cluster.Options) {
		opts.Scheme = resourcemanagerclient.TargetScheme
		opts.Logger = log
		opts.MapperProvider = apiutil.NewDynamicRESTMapper
		opts.Cache.DefaultNamespaces = namespaces(cfg.TargetClientConnection.Namespaces)
		opts.Cache.SyncPeriod = &cfg.TargetClientConnection.CacheResyncPeriod.Duration
		opts.Client.Cache = &client.CacheOptions{DisableFor: []client.Object{&corev1.Event{}, &eventsv1.Event{}}}
	})
}

func addControllers(ctx context.Context, mgr manager.Manager, target cluster.Cluster, cfg *configuration) error {
	controllers := cfg.Controllers
	if controllers.GarbageCollector.Enabled {
		collector := &garbagecollector.Reconciler{Config: controllers.GarbageCollector, Clock: clock.RealClock{}}
		if err := collector.AddToManager(mgr, target); err != nil {
			return err
		}
	}
	if err := health.AddToManager(ctx, mgr, mgr, target, *cfg); err != nil {
		return err
	}
	if err := (&managedresource.Reconciler{
		Config:                    controllers.ManagedResource,
		ClassFilter:               resourcemanagerpredicate.NewClassFilter(*controllers.ResourceClass),
		ClusterID:                 *controllers.ClusterID,
		GarbageCollectorActivated: controllers.GarbageCollector.Enabled,
	}).AddToManager(mgr, mgr, target); err != nil {
		return err
	}
	if !controllers.TokenRequestor.Enabled {
		return nil
	}
	return (&tokenrequestor.Reconciler{
		ConcurrentSyncs: ptr.Deref(controllers.TokenRequestor.ConcurrentSyncs, 0),
		Clock:           clock.RealClock{},
		JitterFunc:      wait.Jitter,
		APIAudiences:    []string{v1beta1constants.GardenerAudience},
		Class:           ptr.To(resourcesv1alpha1.ResourceManagerClassShoot),
	}).AddToManager(mgr, mgr, target)
}

func connection(cfg *componentbaseconfigv1alpha1.ClientConnectionConfiguration) (*rest.Config, error) {
	found, err := clientcmd.BuildConfigFromFlags("", cfg.Kubeconfig)
	if err != nil {
		return nil, err
	}
	found.Burst, found.QPS = int(cfg.Burst), cfg.QPS
	found.AcceptContentTypes, found.ContentType = cfg.AcceptContentTypes, cfg.ContentType
	return found, nil
}

func namespaces(names []string) map[string]cache.Config {
	found := map[string]cache.Config{}
	for _, name := range names {
		found[name] = cache.Config{}
	}
	return found
}
