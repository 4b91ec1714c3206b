// Who is on which host, and which place each rank has there. Pure.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_HOST_LAYOUT_H_
#define LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_HOST_LAYOUT_H_

#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace lockstep {

struct HostLayout {
  // Global ranks of each host, rising. A rank's place is its index there; the
  // first is the host's leader.
  std::vector<std::vector<int>> ranks;
  // Of each rank.
  std::vector<int> host;
  std::vector<int> place;
  // All hosts have equally many ranks: then the ranks of one place reduce a
  // slice of their own between the hosts. Else only the leaders do.
  bool equal = true;
  // Equal, and the ranks of a host follow each other.
  bool contiguous = true;

  int hosts() const { return static_cast<int>(ranks.size()); }
  int size() const { return static_cast<int>(host.size()); }
  int local_size(int rank) const {
    return static_cast<int>(ranks[host[rank]].size());
  }
  bool leader(int rank) const { return place[rank] == 0; }
  // Those that `rank` reduces with between the hosts, one of each, by host;
  // empty when it does not.
  std::vector<int> Across(int rank) const;
};

// hosts[r] is the number of rank r's host, counted from 0 by first ranks.
// InvalidArgument for other numbers.
StatusOr<HostLayout> LayOutHosts(const std::vector<int>& hosts);

// `text` with the numbers in "rank 1", "ranks 0 and 2", "rank 1, 3" and in
// "rank 1 of 4" as those of the whole: rank i becomes ranks[i]. Numbers that
// are no rank stay, and so does what follows "it said: ".
std::string TranslateRanks(std::string_view text, const std::vector<int>& ranks,
                           int size);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_HOST_LAYOUT_H_
