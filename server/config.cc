#include "server/config.h"

#include <yaml-cpp/yaml.h>

#include <CLI/CLI.hpp>
#include <cmath>

#include "common/base/version.h"

namespace lockstep {
namespace {

StatusOr<double> Price(const std::string& path, const std::string& field,
                       const YAML::Node& node) {
  const double price = node.as<double>(std::nan(""));
  if (!std::isfinite(price) || price < 0) {
    return InvalidArgument("{}:{}: {} must be a price of 0 or more", path,
                           node.Mark().line + 1, field);
  }
  return price;
}

Status Read(const std::string& path, const YAML::Node& root, Prices* prices) {
  if (!root.IsMap()) return InvalidArgument("{}: not a price table", path);
  for (const auto& entry : root) {
    const auto field = entry.first.as<std::string>("");
    if (field == "currency") {
      prices->currency = entry.second.as<std::string>("");
    } else if (field == "core_hour") {
      LOCKSTEP_ASSIGN_OR_RETURN(prices->core_hour,
                                Price(path, field, entry.second));
    } else if (field == "gpu_hour") {
      LOCKSTEP_ASSIGN_OR_RETURN(prices->gpu_hour,
                                Price(path, field, entry.second));
    } else if (field == "gpu_hours" && entry.second.IsMap()) {
      for (const auto& gpu : entry.second) {
        const auto model = gpu.first.as<std::string>("");
        LOCKSTEP_ASSIGN_OR_RETURN(
            prices->gpu_hours[model],
            Price(path, "gpu_hours." + model, gpu.second));
      }
    } else {
      return InvalidArgument(
          "{}:{}: there is no field {}; known: currency, core_hour, gpu_hour, "
          "gpu_hours (a map)",
          path, entry.first.Mark().line + 1, field);
    }
  }
  return OkStatus();
}

}  // namespace

StatusOr<Prices> LoadPrices(const std::string& path) {
  Prices prices;
  try {
    LOCKSTEP_RETURN_IF_ERROR(Read(path, YAML::LoadFile(path), &prices));
  } catch (const YAML::BadFile&) {
    return NotFound("the price table {} cannot be read", path);
  } catch (const YAML::Exception& e) {
    return InvalidArgument("{}: {}", path, e.what());
  }
  return prices;
}

bool ParseFlags(int argc, char** argv, Config* config, int* exit_code) {
  CLI::App app(
      "The coordinator of a lockstep cluster: queues and places jobs, drives "
      "worker daemons, answers clients.\nExample: lockstep-coordinator --dir "
      "/var/lib/lockstep --listen 0.0.0.0:7443 --ca ca.crt --cert tls.crt "
      "--key tls.key");
  app.set_version_flag("--version",
                       std::string("lockstep-coordinator ") + kVersion);
  app.add_option("--dir", config->dir, "State directory: store and logs")
      ->required();
  app.add_option("--listen", config->listen,
                 "HOST:PORT for gRPC; port 0 takes a free one")
      ->capture_default_str();
  app.add_option("--http_listen", config->http_listen,
                 "HOST:PORT for /metrics and health; loopback unless TLS")
      ->capture_default_str();
  app.add_option("--http_tls_certificate", config->http_tls_certificate,
                 "PEM certificate of the HTTP port");
  app.add_option("--http_tls_key", config->http_tls_key,
                 "PEM key of the HTTP port");
  app.add_option("--ca", config->ca, "PEM certificate of the cluster's CA");
  app.add_option("--cert", config->cert, "PEM certificate of this coordinator");
  app.add_option("--key", config->key, "PEM key of this coordinator");
  app.add_flag("--insecure_loopback", config->insecure_loopback,
               "No TLS: everybody on this machine may do everything; refused "
               "on any address but loopback");
  app.add_option("--cluster", config->cluster,
                 "Name of the cluster, as in its certificates")
      ->capture_default_str();
  app.add_option("--prices", config->prices_file, "Price table (YAML)");
  app.add_option("--log_level", config->log_level, "debug, info, warn or error")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}))
      ->capture_default_str();
  app.add_option("--allow_faults", config->allow_faults,
                 "For tests: NAME=crash@N,NAME=error@N");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    *exit_code = app.exit(e) == 0 ? 0 : 2;
    return false;
  }
  return true;
}

}  // namespace lockstep
