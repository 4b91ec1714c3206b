// The host of each rank, and its place there. Pure.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_HOST_LAYOUT_H_
#define LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_HOST_LAYOUT_H_

#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace lockstep::worker::collective::hierarchical {

struct HostLayout {
  // The global ranks of each host, ascending. A rank's place is its index
  // there; the first one is the host's leader.
  std::vector<std::vector<int>> ranks;
  // By rank.
  std::vector<int> host;
  std::vector<int> place;
  // All hosts have the same number of ranks: then the ranks of one place reduce
  // a slice of their own between the hosts. Else only the leaders do.
  bool equal = true;
  // `equal`, and the ranks of a host are consecutive.
  bool contiguous = true;

  int hosts() const { return static_cast<int>(ranks.size()); }
  int size() const { return static_cast<int>(host.size()); }
  int local_size(int rank) const {
    return static_cast<int>(ranks[host[rank]].size());
  }
  bool leader(int rank) const { return place[rank] == 0; }
  // Returns the ranks that `rank` reduces with between the hosts, by host: one
  // on each, itself included. Empty: it takes no part there.
  std::vector<int> Across(int rank) const;
};

// hosts[r] is the number of rank r's host, counted from 0 by first ranks.
// InvalidArgument for other numbers.
StatusOr<HostLayout> LayOutHosts(const std::vector<int>& hosts);

// Returns `text` with local ranks replaced by global ones: rank i becomes
// ranks[i] in "rank 1", "ranks 0 and 2", "rank 1, 3" and "rank 1 of 4". Other
// numbers stay, and so does the text behind "it reported: ".
std::string TranslateRanks(std::string_view text, const std::vector<int>& ranks,
                           int size);

}  // namespace lockstep::worker::collective::hierarchical

#endif  // LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_HOST_LAYOUT_H_
