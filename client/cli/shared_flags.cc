// Flags that several commands share.
#include <fmt/format.h>

#include <cstdlib>

#include "client/cli/cli.h"

namespace lockstep::cli {
namespace {

void AddFormats(Command* command, Cli* cli,
                const std::vector<std::string>& all) {
  std::string text;
  for (const std::string& format : all) {
    text += text.empty() ? "" : format == all.back() ? " or " : ", ";
    text += format;
  }
  command->Add("-o,--output-format FORMAT", &cli->output, text, OneOf(all),
               ShowDefault);
  command->Add(
      "--json", [cli] { cli->output = "json"; }, "As -o json");
  AddColorOption(command, cli);
}

}  // namespace

void AddConnectionOptions(Command* command, Cli* cli) {
  ConnectionFlags* const c = &cli->connection;
  const FlagGroup group =
      command->Group("Connection (default: LOCKSTEP_*, then the context)");
  group.Add("--context", &c->context, "Context of the configuration file");
  group.Add("--address", &c->address, "HOST:PORT of the coordinator");
  group.Add("--ca", &c->ca, "PEM file of the cluster's CA");
  group.Add("--cert", &c->cert, "PEM file of the certificate");
  group.Add("--key", &c->key, "PEM file of its key");
  group.Add("--insecure-loopback", &c->insecure_loopback,
            "No TLS; on this machine only");
}

void AddOutputOption(Command* command, Cli* cli) {
  AddFormats(command, cli, {"table", "wide", "json", "yaml", "name"});
}

void AddRequestOptions(Command* command, Cli* cli) {
  AddOutputOption(command, cli);
  AddConnectionOptions(command, cli);
}

void AddListOptions(Command* command, Cli* cli) {
  AddFormats(command, cli,
             {"table", "wide", "json", "jsonl", "yaml", "csv", "name"});
  command->Add("--no-headers", &cli->no_headers, "Omit the column names");
  command->Add("--uri", &cli->uri, "Print only URIs, like gcloud");
  command->Add("--columns NAMES", &cli->columns,
               "Only these columns of -o wide, in this order, as NAME,STATE",
               SplitAt(','));
}

void AddColorOption(Command* command, Cli* cli) {
  command->Add("--color WHEN", &cli->color, "auto, always or never",
               OneOf({"auto", "always", "never"}), ShowDefault);
}

Flag& AddFormatOption(Command* command, std::string* format) {
  return command->Add("--format FORMAT", format,
                      "gcloud's format, instead of -o: json, yaml, "
                      "value(FIELDS), csv(FIELDS), table(FIELDS) or default; "
                      "FIELDS as jobId,trainingInput.scaleTier,lockstep.owner");
}

void AddJobArgument(Command* command, std::string* name) {
  command->Add("name JOB", name, "The job's name or a unique prefix", Required);
}

void AddNodeArgument(Command* command, std::string* name) {
  command->Add("node NODE", name, "The node's name or a unique prefix",
               Required);
}

FlagSetting AtLeast(int64_t least) {
  return Checked([least](const std::string& text) -> std::string {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0') {
      return fmt::format("\"{}\" is not a number", Printable(text));
    }
    if (!(value >= static_cast<double>(least))) {
      return fmt::format("{} is less than {}", Printable(text), least);
    }
    return "";
  });
}

Command LeafCommand(const std::string& name, const std::string& description,
                    const std::string& examples) {
  return Command(name, description, "\nExamples:\n" + examples);
}

}  // namespace lockstep::cli
