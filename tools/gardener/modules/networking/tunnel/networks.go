package tunnel

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// Network is a network of the Shoot, and the addresses that it has inside of the tunnel.
//
// The seed may use the same addresses as the Shoot, so the tunnel has others, of ranges that Gardener reserves.
type Network struct {
	Shoot, Mapped netip.Prefix
}

// Ranges of the tunnel, by the environment variable that lists the networks of the Shoot.
var ranges = []struct {
	variable string
	mapped   netip.Prefix
}{
	{"SHOOT_NODE_NETWORKS", netip.MustParsePrefix("242.0.0.0/8")},
	{"SHOOT_SERVICE_NETWORKS", netip.MustParsePrefix("243.0.0.0/8")},
	{"SHOOT_POD_NETWORKS", netip.MustParsePrefix("244.0.0.0/8")},
}

// Networks reads the networks of the Shoot from the environment.
func Networks() ([]Network, error) {
	if err := supported(); err != nil {
		return nil, err
	}
	var networks []Network
	for _, one := range ranges {
		found, err := mapped(os.Getenv(one.variable), one.mapped)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", one.variable, err)
		}
		networks = append(networks, found...)
	}
	if len(networks) == 0 {
		return nil, fmt.Errorf("the environment names no network of the Shoot")
	}
	return networks, nil
}

// mapped places the networks of a list one after another into a range, the largest first: so each is aligned.
func mapped(list string, into netip.Prefix) ([]Network, error) {
	var shoot []netip.Prefix
	for part := range strings.SplitSeq(list, ",") {
		if part == "" {
			continue
		}
		prefix, err := netip.ParsePrefix(part)
		if err != nil {
			return nil, err
		}
		if !prefix.Addr().Is4() {
			return nil, fmt.Errorf("%s: this stand-in knows IPv4 only", prefix)
		}
		shoot = append(shoot, prefix.Masked())
	}
	slices.SortStableFunc(shoot, func(a, b netip.Prefix) int { return cmp.Compare(a.Bits(), b.Bits()) })
	next := uint64(number(into.Addr()))
	end := next + 1<<(32-into.Bits())
	var networks []Network
	for _, one := range slices.Compact(shoot) {
		if next+1<<(32-one.Bits()) > end {
			return nil, fmt.Errorf("%s is too small for %s", into, list)
		}
		networks = append(networks, Network{one, netip.PrefixFrom(address(uint32(next)), one.Bits())})
		next += 1 << (32 - one.Bits())
	}
	return networks, nil
}

func number(address netip.Addr) uint32 {
	b := address.As4()
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

func address(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

// mask is the network mask as OpenVPN spells it.
func mask(prefix netip.Prefix) string {
	return address(uint32(^uint64(0) << (32 - prefix.Bits()))).String()
}
