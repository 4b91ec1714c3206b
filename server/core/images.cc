#include "server/core/images.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "server/core/host_fit.h"

namespace lockstep::server {
namespace {

using lockstep::Seconds;

constexpr size_t kMaxFailures = 5;

const ImageContent* SettledOf(const Job& job, const std::string& image) {
  for (const ImageContent& content : job.images) {
    if (content.image == image) return &content;
  }
  return nullptr;
}

bool Names(const JobSpec& spec, const std::string& image) {
  return std::any_of(spec.roles.begin(), spec.roles.end(),
                     [&](const RoleSpec& role) {
                       return role.container && role.container->image == image;
                     });
}

// Returns false if it was settled before or is not an image of the job.
bool Settle(Job* job, ImageContent content, const NodeName& node) {
  if (content.id.empty() || !Names(job->spec, content.image) ||
      SettledOf(*job, content.image) != nullptr) {
    return false;
  }
  content.node = node;
  job->images.push_back(std::move(content));
  return true;
}

std::string Seconds(Duration duration) {
  return fmt::format("{:.1f} s", ToSeconds(duration));
}

ImageContent WantedOf(const Job& job, const std::string& image) {
  const ImageContent* settled = SettledOf(job, image);
  return settled != nullptr ? *settled : ImageContent{image, "", "", ""};
}

void AddFailure(Job* job, const std::string& what, const std::string& why,
                Time now) {
  size_t failures = 0;
  for (const Event& event : job->events) {
    if (event.reason != Reason::kPrefetchFailed) continue;
    if (event.message.starts_with(what)) return;
    ++failures;
  }
  if (failures < kMaxFailures) {
    AddEvent(job, Reason::kPrefetchFailed, what + why, now);
  }
}

// True if the job has not settled this image or settled it with this content.
bool IsOf(const Job& job, const ImageContent& wanted) {
  const ImageContent ours = WantedOf(job, wanted.image);
  return Names(job.spec, wanted.image) && ours.id == wanted.id &&
         ours.digest == wanted.digest;
}

// The list of one node, in fetch order.
class List {
 public:
  List(Prefetch* list, const PrefetchOptions& options)
      : list_(*list), options_(options) {}

  void Add(const ImageContent& image) {
    if (list_.images.size() < options_.images &&
        std::find(list_.images.begin(), list_.images.end(), image) ==
            list_.images.end()) {
      list_.images.push_back(image);
    }
  }
  void Add(const Package& package) {
    const bool known = std::any_of(
        list_.packages.begin(), list_.packages.end(),
        [&](const Package& p) { return p.digest == package.digest; });
    if (!known && list_.packages.size() < options_.packages) {
      list_.packages.push_back(package);
    }
  }

 private:
  Prefetch& list_;
  const PrefetchOptions& options_;
};

std::vector<const RoleSpec*> RolesFor(const JobSpec& spec,
                                      const HostCapacity& host) {
  std::vector<const RoleSpec*> roles;
  if (!host.ready || (!spec.pool.empty() && host.pool != spec.pool)) {
    return roles;
  }
  const FreeHost empty = FreeOf(host);
  for (const RoleSpec& role : spec.roles) {
    if (Fits(role, empty)) roles.push_back(&role);
  }
  return roles;
}

}  // namespace

std::vector<ImageContent> SettledFor(const Job& job,
                                     const std::vector<LocalTask>& tasks) {
  std::vector<ImageContent> settled;
  for (const ImageContent& content : job.images) {
    if (std::any_of(tasks.begin(), tasks.end(), [&](const LocalTask& task) {
          return task.container && task.container->image == content.image;
        })) {
      settled.push_back(content);
    }
  }
  return settled;
}

void SettleImages(Job* job, const std::vector<ImageContent>& found,
                  const NodeName& node, Time now) {
  for (const ImageContent& content : found) {
    if (!Settle(job, content, node)) continue;
    AddEvent(job, Reason::kImagePinned,
             fmt::format("image {} is {}, as on {}", content.image,
                         ShownDigest(content), node),
             now);
  }
}

bool HasSettledImages(const Job& job, const GangStatus& gang) {
  return std::all_of(
      gang.images.begin(), gang.images.end(), [&](const ImageContent& here) {
        const ImageContent* settled = SettledOf(job, here.image);
        return settled == nullptr || IsSameContent(*settled, here);
      });
}

bool CanFetchAhead(const JobSpec& spec) {
  return !spec.packages.empty() ||
         std::any_of(
             spec.roles.begin(), spec.roles.end(),
             [](const RoleSpec& role) { return role.container.has_value(); });
}

std::map<NodeName, Prefetch> PrefetchLists(const std::vector<const Job*>& queue,
                                           std::vector<HostCapacity> hosts,
                                           const PrefetchOptions& options) {
  for (HostCapacity& host : hosts) {
    host.allocated = {};
    host.allocated_gpus.clear();
  }
  std::map<NodeName, Prefetch> lists;
  for (size_t i = 0; i < std::min(queue.size(), options.jobs); ++i) {
    const Job& job = *queue[i];
    if (!CanFetchAhead(job.spec)) continue;
    // It returns to its last nodes if possible.
    const std::set<NodeName> before = NodesOf(job);
    std::stable_sort(hosts.begin(), hosts.end(),
                     [&](const HostCapacity& a, const HostCapacity& b) {
                       return std::make_pair(!before.contains(a.node), a.node) <
                              std::make_pair(!before.contains(b.node), b.node);
                     });
    size_t nodes = 0;
    for (const HostCapacity& host : hosts) {
      const std::vector<const RoleSpec*> roles = RolesFor(job.spec, host);
      if (roles.empty()) continue;
      if (++nodes > options.nodes) break;
      List list(&lists[host.node], options);
      for (const RoleSpec* role : roles) {
        if (role->container) list.Add(WantedOf(job, role->container->image));
      }
      for (const Package& package : job.spec.packages) list.Add(package);
    }
  }
  return lists;
}

void TakePrefetched(Job* job, const std::vector<Prefetched>& report,
                    const NodeName& node, Time now) {
  for (const Prefetched& item : report) {
    if (item.image) {
      const std::string image = item.image->image;
      if (!IsOf(*job, *item.image)) continue;
      if (!item.ready) {
        if (item.error.empty()) continue;
        AddFailure(job,
                   fmt::format("image {} is unavailable on {}: ", image, node),
                   item.error, now);
      } else if (!item.fetched) {
        SettleImages(job, {*item.content}, node, now);
      } else if (Settle(job, *item.content, node)) {
        AddEvent(
            job, Reason::kImagePinned,
            fmt::format("image {} prefetched on {} in {}: {}", image, node,
                        Seconds(item.duration), ShownDigest(*item.content)),
            now);
      }
      continue;
    }
    if (item.error.empty()) continue;
    for (const Package& package : job->spec.packages) {
      if (package.digest != item.package_digest) continue;
      AddFailure(job,
                 fmt::format("package {} is unavailable on {}: ",
                             package.file_name, node),
                 item.error, now);
    }
  }
}

}  // namespace lockstep::server
