#include "client/local/records.h"

#include <nlohmann/json.hpp>

namespace lockstep::cli {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;

// Runs `read`, which takes fields from the parsed text. Every failure becomes
// one error.
template <typename T, typename Read>
StatusOr<T> Decode(std::string_view text, Read read) {
  try {
    const json root = json::parse(text);
    if (root.at("format").get<int>() != kFormat) {
      return InvalidArgument("format {} is not {}: made by another version",
                             root.at("format").get<int>(), kFormat);
    }
    T value;
    read(root, &value);
    return value;
  } catch (const json::exception& e) {
    return InvalidArgument("{}", e.what());
  }
}

}  // namespace

std::string EncodeCluster(const ClusterRecord& record) {
  json workers = json::array();
  for (const WorkerRecord& worker : record.workers) {
    workers.push_back({{"name", worker.name},
                       {"httpPort", worker.http_port},
                       {"cpus", worker.share.cpus},
                       {"memoryBytes", worker.share.memory_bytes},
                       {"gpus", worker.share.gpus}});
  }
  return json({{"format", kFormat},
               {"cluster", record.cluster},
               {"insecureLoopback", record.insecure_loopback},
               {"httpToken", record.http_token},
               {"logLevel", record.log_level},
               {"prices", record.prices},
               {"runtimeDir", record.runtime_dir},
               {"grpcPort", record.grpc_port},
               {"httpPort", record.http_port},
               {"workers", workers}})
             .dump(2) +
         "\n";
}

StatusOr<ClusterRecord> DecodeCluster(std::string_view text) {
  return Decode<ClusterRecord>(text, [](const json& root, ClusterRecord* r) {
    r->cluster = root.at("cluster");
    r->insecure_loopback = root.at("insecureLoopback");
    r->http_token = root.value("httpToken", false);
    r->log_level = root.at("logLevel");
    r->prices = root.at("prices");
    r->runtime_dir = root.at("runtimeDir");
    r->grpc_port = root.at("grpcPort");
    r->http_port = root.at("httpPort");
    for (const json& worker : root.at("workers")) {
      WorkerRecord w;
      w.name = worker.at("name");
      w.http_port = worker.at("httpPort");
      w.share.cpus = worker.at("cpus");
      w.share.memory_bytes = worker.at("memoryBytes");
      w.share.gpus = worker.at("gpus").get<std::vector<int>>();
      r->workers.push_back(std::move(w));
    }
  });
}

std::string EncodeState(const StateRecord& state) {
  json daemons = json::object();
  for (const auto& [name, daemon] : state) {
    daemons[name] = {{"pid", daemon.process.pid},
                     {"startTime", daemon.process.start_time},
                     {"bootId", daemon.boot_id}};
  }
  return json({{"format", kFormat}, {"daemons", daemons}}).dump(2) + "\n";
}

StatusOr<StateRecord> DecodeState(std::string_view text) {
  return Decode<StateRecord>(text, [](const json& root, StateRecord* state) {
    for (const auto& [name, daemon] : root.at("daemons").items()) {
      RunningDaemon& d = (*state)[name];
      d.process.pid = daemon.at("pid");
      d.process.start_time = daemon.at("startTime");
      d.boot_id = daemon.at("bootId");
    }
  });
}

}  // namespace lockstep::cli
