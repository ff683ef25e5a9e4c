// Gardener's own end-to-end tests as a program: all specs of its suite test/e2e/gardener, with the flags of Ginkgo and of
// the suite (`-ginkgo.label-filter`, `-kubecfg`, …). Go's `test` command would make the same of the suite's test file.
package main

import (
	"flag"
	"os"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/gardener/gardener/pkg/logger"
	"github.com/gardener/gardener/test/e2e"
	_ "github.com/gardener/gardener/test/e2e/gardener/managedseed"
	_ "github.com/gardener/gardener/test/e2e/gardener/project"
	_ "github.com/gardener/gardener/test/e2e/gardener/seed"
	"github.com/gardener/gardener/test/e2e/gardener/shoot"
	_ "github.com/gardener/gardener/test/e2e/gardener/shoot/gardenerupgrade"
)

var _ = e2e.CustomJUnitReport()

// suite is what Ginkgo wants in place of a *testing.T: RunSpecs tells the result, too.
type suite struct{}

func (suite) Fail() {}

func main() {
	testing.Init()
	logf.SetLogger(logger.MustNewZapLogger(logger.InfoLevel, logger.FormatJSON, zap.WriteTo(ginkgo.GinkgoWriter)))
	shoot.RegisterShootFlags()
	flag.Parse()
	gomega.RegisterFailHandler(ginkgo.Fail)
	if !ginkgo.RunSpecs(suite{}, "Test E2E Gardener Suite") {
		os.Exit(1)
	}
}
