// lockstep-data: makes TFRecord shards and checks them.
//
// Data goes to stdout, all else to stderr. Exits with 0, 1 for a failure or
// for damage that was found, 2 for wrong usage.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/status.h"
#include "common/base/version.h"
#include "common/cli/command.h"
#include "worker/data/check.h"
#include "worker/data/pack.h"
#include "worker/data/shards.h"

namespace lockstep::worker::data {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;

struct Flags {
  std::string output = "table";
  ShardOptions shards;
  std::string images;
  std::string labels;
  std::string directory;
  std::string size;
  JpegFolderOptions folder;
  std::vector<std::string> paths;
  CheckOptions check;
};

int Fail(const Status& status, int code = kFailed) {
  fmt::print(stderr, "lockstep-data: {}\n", Message(status));
  return code;
}

// A failure to write the data itself, such as a full disk behind stdout.
int FlushOutput(int code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  fmt::print(stderr, "lockstep-data: writing to standard output failed\n");
  return kFailed;
}

// Bytes that are no UTF-8 (a file name) become U+FFFD.
void PrintJson(const nlohmann::ordered_json& json) {
  fmt::print("{}\n",
             json.dump(2, ' ', false,
                       nlohmann::ordered_json::error_handler_t::replace));
}

const char* Plural(uint64_t count) { return count == 1 ? "" : "s"; }

int PrintPacked(const Flags& flags, const StatusOr<PackResult>& result) {
  if (!result.ok()) return Fail(result.status());
  for (const std::string& text : result->skipped) {
    fmt::print(stderr, "lockstep-data: skipped: {}\n", text);
  }
  if (flags.output == "json") {
    nlohmann::ordered_json json;
    json["samples"] = result->samples;
    json["skipped"] = result->skipped.size();
    json["classes"] = result->classes;
    json["shards"] = nlohmann::ordered_json::array();
    for (const WrittenShard& shard : result->shards) {
      json["shards"].push_back({{"path", shard.path},
                                {"records", shard.records},
                                {"bytes", shard.bytes}});
    }
    PrintJson(json);
    return 0;
  }
  for (const WrittenShard& shard : result->shards) {
    fmt::print("{}\n", shard.path);
  }
  fmt::print(stderr, "packed {} sample{} into {} shard{}\n", result->samples,
             Plural(result->samples), result->shards.size(),
             Plural(result->shards.size()));
  return 0;
}

void PrintReportJson(const CheckReport& report) {
  nlohmann::ordered_json json;
  json["records"] = report.records;
  json["bytes"] = report.bytes;
  json["problems"] = report.problems;
  json["shards"] = nlohmann::ordered_json::array();
  for (const ShardReport& shard : report.shards) {
    json["shards"].push_back({{"path", shard.path},
                              {"records", shard.records},
                              {"bytes", shard.bytes},
                              {"problem_count", shard.problem_count},
                              {"problems", shard.problems}});
  }
  json["classes"] = nlohmann::ordered_json::array();
  for (const auto& [label, info] : report.classes) {
    json["classes"].push_back(
        {{"label", label}, {"name", info.name}, {"samples", info.samples}});
  }
  json["shapes"] = report.shapes;
  PrintJson(json);
}

void PrintReportTable(const CheckReport& report) {
  size_t width = 5;
  for (const ShardReport& shard : report.shards) {
    width = std::max(width, shard.path.size());
  }
  fmt::print("{:<{}}  {:>9}  {:>13}  {}\n", "SHARD", width, "RECORDS", "BYTES",
             "STATE");
  for (const ShardReport& shard : report.shards) {
    fmt::print("{:<{}}  {:>9}  {:>13}  {}\n", shard.path, width, shard.records,
               shard.bytes, shard.problem_count == 0 ? "ok" : "DAMAGED");
  }
  fmt::print("{:<{}}  {:>9}  {:>13}\n", "total", width, report.records,
             report.bytes);
  fmt::print("\n{:>9}  {:>5}  {}\n", "SAMPLES", "CLASS", "NAME");
  for (const auto& [label, info] : report.classes) {
    fmt::print("{:>9}  {:>5}  {}\n", info.samples, label,
               info.name.empty() ? "-" : info.name);
  }
  fmt::print("\n{:>9}  {}\n", "SAMPLES", "SHAPE");
  for (const auto& [shape, count] : report.shapes) {
    fmt::print("{:>9}  {}\n", count, shape);
  }
}

int RunCheck(const Flags& flags) {
  const auto paths = FindShards(RealFileSystem(), flags.paths);
  if (!paths.ok()) return Fail(paths.status());
  const CheckReport report = CheckShards(*paths, flags.check);
  if (flags.output == "json") {
    PrintReportJson(report);
  } else {
    PrintReportTable(report);
  }
  for (const ShardReport& shard : report.shards) {
    for (const std::string& problem : shard.problems) {
      fmt::print(stderr, "lockstep-data: {}\n", problem);
    }
    if (shard.problem_count > shard.problems.size()) {
      fmt::print(stderr, "lockstep-data: {}: {} more problems\n", shard.path,
                 shard.problem_count - shard.problems.size());
    }
  }
  return report.problems == 0 ? 0 : kFailed;
}

// "224" or "224x160" (height x width).
Status ParseSize(const std::string& text, JpegFolderOptions* folder) {
  const char* const end = text.data() + text.size();
  std::from_chars_result parsed =
      std::from_chars(text.data(), end, folder->height);
  folder->width = folder->height;
  if (parsed.ec == std::errc() && parsed.ptr != end && *parsed.ptr == 'x') {
    parsed = std::from_chars(parsed.ptr + 1, end, folder->width);
  }
  if (parsed.ec != std::errc() || parsed.ptr != end || folder->height == 0 ||
      folder->width == 0) {
    return InvalidArgument("--size {}: expected N or HEIGHTxWIDTH", text);
  }
  return OkStatus();
}

int RunPackJpeg(Flags* flags) {
  if (!flags->size.empty()) {
    const Status status = ParseSize(flags->size, &flags->folder);
    if (!status.ok()) return Fail(status, kUsage);
  }
  return PrintPacked(*flags, PackJpegFolder(RealFileSystem(), flags->directory,
                                            flags->folder, flags->shards));
}

void AddOutput(Command* command, Flags* flags) {
  command->Add("-o,--output", &flags->output, "table or json",
               OneOf({"table", "json"}), ShowDefault);
}

void AddShardOptions(Command* command, Flags* flags) {
  command->Add("--out DIR", &flags->shards.directory,
               "Directory for the shards; created if missing", Required);
  command->Add("--name NAME", &flags->shards.name,
               "Prefix of each shard's name, NAME-NN-COUNT.tfrec", Required,
               Checked([](const std::string& name) {
                 return Message(CheckDatasetName(name));
               }));
  command->Add("--records-per-shard N", &flags->shards.records_per_shard,
               "Samples per shard; the last shard has the rest",
               InRange(uint64_t{1}, uint64_t{1} << 40), ShowDefault);
  command->Add("--overwrite", &flags->shards.overwrite,
               "Replace existing shards of this name");
  AddOutput(command, flags);
}

Command PackIdxCommand(Flags* flags) {
  Command command(
      "idx", "Pack IDX files (the MNIST family), plain or gzip",
      "Example:\n  lockstep-data pack idx --images train-images-idx3-ubyte.gz "
      "\\\n      --labels train-labels-idx1-ubyte.gz --out data/train --name "
      "fashion");
  command.Add("--images FILE", &flags->images, "IDX file of the images",
              Required);
  command.Add("--labels FILE", &flags->labels, "IDX file of the labels",
              Required);
  AddShardOptions(&command, flags);
  command.run = [flags] {
    return PrintPacked(*flags, PackIdx(RealFileSystem(), flags->images,
                                       flags->labels, flags->shards));
  };
  return command;
}

Command PackJpegCommand(Flags* flags) {
  Command command(
      "jpeg", "Pack a directory with one subdirectory of JPEGs per class",
      "Example:\n  lockstep-data pack jpeg --dir cats_vs_dogs --size 224 \\\n"
      "      --records-per-shard 128 --out data/train --name catsdogs");
  command.Add("--dir DIR", &flags->directory, "DIR/CLASS/*.jpg", Required);
  command.Add("--size N", &flags->size,
              "Resize every image to N x N or HEIGHTxWIDTH (default: store "
              "files unchanged)");
  command.Add("--quality Q", &flags->folder.quality,
              "JPEG quality of resized images", InRange(1, 100), ShowDefault);
  command.Add("--raw", &flags->folder.raw,
              "Store decoded RGB bytes: larger, but needs no decoding later");
  command.Add("--seed N", &flags->folder.seed,
              "Seed of the order in which images are stored", ShowDefault);
  command.Add("--skip-damaged", &flags->folder.skip_damaged,
              "Skip damaged images and report them on stderr");
  AddShardOptions(&command, flags);
  command.run = [flags] { return RunPackJpeg(flags); };
  return command;
}

Command CheckCommand(Flags* flags) {
  Command command(
      "check",
      "Verify shards and count records and classes; exit with 1 if one is "
      "damaged",
      "Example:\n  lockstep-data check data/train 'data/eval/*.tfrec'");
  command.Add("path PATH", &flags->paths,
              "Shards: files, directories or patterns", Required);
  command.Add("--decode", &flags->check.decode,
              "Decode every JPEG instead of only its header");
  AddOutput(&command, flags);
  command.run = [flags] { return RunCheck(*flags); };
  return command;
}

int Main(int argc, char** argv) {
  Flags flags;
  Command command(
      "lockstep-data", "Create and check TFRecord shards for training.",
      "Example:\n"
      "  lockstep-data pack jpeg --dir photos --size 64 --name photos "
      "--out data/train\n"
      "  lockstep-data check data/train");
  command.AddProgramFlags(
      {1, kVersion, "", {"lockstep(1)", "lockstep-train(1)"}});
  Command pack("pack", "Create shards NAME-NN-COUNT.tfrec");
  pack.children = {PackIdxCommand(&flags), PackJpegCommand(&flags)};
  command.children = {std::move(pack), CheckCommand(&flags)};
  const ParsedCommand parsed = Parse(command, argc, argv);
  if (!parsed.command) {
    return parsed.Print("lockstep-data: ", " (see lockstep-data --help)",
                        std::cout, std::cerr);
  }
  return *parsed.command->run();
}

}  // namespace
}  // namespace lockstep::worker::data

int main(int argc, char** argv) {
  try {
    return lockstep::worker::data::FlushOutput(
        lockstep::worker::data::Main(argc, argv));
  } catch (const std::exception& error) {
    // Such as no memory, or a closed pipe behind stdout.
    std::fprintf(stderr, "lockstep-data: %s\n", error.what());
    return lockstep::worker::data::kFailed;
  }
}
