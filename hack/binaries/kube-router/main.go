// kube-router as the enforcer of NetworkPolicies and nothing else: what it has for routes and Services would have to
// be compiled too, with the SDK of a cloud and a BGP server.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"github.com/cloudnativelabs/kube-router/v2/pkg/version"
	"github.com/spf13/pflag"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	config := options.NewKubeRouterConfig()
	config.AddFlags(pflag.CommandLine)
	pflag.Parse()
	if config.Version {
		version.PrintVersion(false)
		return
	}
	// Its health check would wait for them.
	config.RunRouter, config.RunServiceProxy, config.RunLoadBalancer = false, false, false
	if err := run(config); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run enforces until a signal ends it.
func run(config *options.KubeRouterConfig) error {
	connection, err := clientcmd.BuildConfigFromFlags(config.Master, config.Kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(connection)
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	health, err := healthcheck.NewHealthController(config)
	if err != nil {
		return fmt.Errorf("creating the health check: %w", err)
	}
	stop := make(chan struct{})
	heartbeats := make(chan *healthcheck.ControllerHeartbeat, 10)
	var running sync.WaitGroup
	running.Add(1)
	go health.RunServer(stop, &running)

	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods().Informer()
	namespaces := factory.Core().V1().Namespaces().Informer()
	policies := factory.Networking().V1().NetworkPolicies().Informer()
	factory.Start(stop)
	factory.WaitForCacheSync(stop)
	health.SetAlive()
	running.Add(1)
	go health.RunCheck(heartbeats, stop, &running)

	tables, sets, err := netpol.NewIPTablesHandlers(config)
	if err != nil {
		return fmt.Errorf("finding the packet filter: %w", err)
	}
	controller, err := netpol.NewNetworkPolicyController(
		client, config, pods, policies, namespaces, &sync.Mutex{}, tables, sets,
	)
	if err != nil {
		return fmt.Errorf("creating the controller: %w", err)
	}
	for informer, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		pods:       controller.PodEventHandler,
		namespaces: controller.NamespaceEventHandler,
		policies:   controller.NetworkPolicyEventHandler,
	} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return fmt.Errorf("watching what policies are about: %w", err)
		}
	}
	running.Add(1)
	go controller.Run(heartbeats, stop, &running)

	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
	<-ended
	close(stop)
	running.Wait()
	return nil
}
