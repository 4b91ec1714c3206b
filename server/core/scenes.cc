#include "server/core/scenes.h"

#include <gtest/gtest.h>

namespace lockstep::server {

Scene Queued() { return Scene(NativeSpec("j", 2)); }

Scene Preparing() {
  Scene s = Queued();
  s.Put({"a", "b"});
  s.Settle();
  return s;
}

Scene Forming() {
  Scene s = Preparing();
  s.Prepared();
  s.Settle();
  return s;
}

Scene Running() {
  Scene s = Queued();
  s.Run({"a", "b"});
  return s;
}

Scene Failing() {
  Scene s = Running();
  s.Exited(1, Code(1));
  s.Settle();
  EXPECT_TRUE(s.job.failing);
  return s;
}

JobSpec ParameterServers() {
  return ProgramSpec("p", {Role(TaskType::kChief, 1), Role(TaskType::kPs, 1)});
}

HostCapacity Host(const NodeName& node, double cpus, int64_t gib,
                  const std::vector<std::string>& gpus) {
  HostCapacity host;
  host.node = node;
  host.ready = true;
  host.capacity = {cpus, gib * kGiB, static_cast<int32_t>(gpus.size()), ""};
  for (size_t i = 0; i < gpus.size(); ++i) {
    host.gpus.push_back({static_cast<int32_t>(i), "", gpus[i], 0});
  }
  return host;
}

JobSpec Gang(int32_t tasks, Resources each) {
  JobSpec spec = NativeSpec("j", tasks);
  for (RoleSpec& role : spec.roles.Edit()) role.resources = each;
  return spec;
}

}  // namespace lockstep::server
