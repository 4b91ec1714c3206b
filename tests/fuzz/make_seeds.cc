// Writes the first inputs of the fuzz targets, by the real encoders:
//
//   fuzz_make_seeds tests/fuzz/corpus
//
// Files that fuzzing found have other names and stay.
#include <zlib.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "common/base/log_line.h"
#include "common/pki/ca.h"
#include "common/training/training_file_fixture.h"
#include "common/wire/job_wire.h"
#include "common/wire/worker_wire.h"
#include "server/store/job_rows.h"
#include "server/store/record.h"
#include "worker/agent/store/task_store.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/checkpoint/shard.h"
#include "worker/checkpoint/vote.h"
#include "worker/data/example.h"
#include "worker/data/jpeg.h"
#include "worker/data/tfrecord.h"
#include "worker/task/bytes.h"
#include "worker/task/exit_record.h"
#include "worker/task/rank_page.h"
#include "worker/task/shim_messages.h"
#include "worker/task/shim_spec.h"
#include "worker/task/task_record.h"

namespace lockstep {
namespace {

namespace task = worker::task;

using worker::agent::StoredGang;
using worker::data::AppendTfRecord;
using worker::data::EncodeExample;
using worker::data::Image;
using worker::data::ImageFormat;
using worker::data::LabelledImage;

class Seeds {
 public:
  explicit Seeds(std::string directory) : directory_(std::move(directory)) {}

  void Add(const std::string& target, const std::string& name,
           std::string_view bytes) {
    const std::string directory = directory_ + "/" + target;
    std::filesystem::create_directories(directory);
    std::ofstream(directory + "/seed-" + name, std::ios::binary) << bytes;
  }

 private:
  const std::string directory_;
};

template <typename T>
T Must(StatusOr<T> value) {
  if (!value.ok()) {
    fprintf(stderr, "%s\n", Message(value.status()).c_str());
    std::exit(1);
  }
  return *std::move(value);
}

std::string Gzip(const std::string& plain) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(plain.size() + 100, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

void AddData(Seeds* seeds) {
  const std::string pixels(2 * 3 * 1, 'p');
  LabelledImage raw{ImageFormat::kRaw, pixels, {2, 3, 1}, 7, "seven"};
  const std::string example = EncodeExample(raw);
  seeds->Add("example", "raw", example);
  const Image image{{8, 8, 3}, std::vector<uint8_t>(8 * 8 * 3, 100)};
  const std::string jpeg = Must(EncodeJpeg(image, 80));
  const Image grey_image{{5, 7, 1}, std::vector<uint8_t>(35, 30)};
  const std::string grey = Must(EncodeJpeg(grey_image, 30));
  seeds->Add("jpeg", "rgb", jpeg);
  seeds->Add("jpeg", "grey", grey);
  seeds->Add("example", "jpeg",
             EncodeExample({ImageFormat::kJpeg, jpeg, {8, 8, 3}, 1, ""}));
  std::string records;
  AppendTfRecord(example, &records);
  AppendTfRecord("", &records);
  AppendTfRecord("short", &records);
  seeds->Add("tfrecord", "three", records);
  seeds->Add("tfrecord", "empty-record",
             std::string_view(records).substr(0, 0));
  seeds->Add("tfrecord", "cut",
             std::string_view(records).substr(0, records.size() - 3));
  const std::string images(
      "\0\0\x08\x03\0\0\0\x02\0\0\0\x02\0\0\0\x02"
      "abcdefgh",
      24);
  const std::string labels("\0\0\x08\x01\0\0\0\x02\x01\x02", 10);
  seeds->Add("idx", "images", images);
  seeds->Add("idx", "labels", labels);
  seeds->Add("idx", "images-gzip", Gzip(images));
  seeds->Add("idx", "two-members",
             Gzip(images.substr(0, 9)) + Gzip(images.substr(9)));
}

void AddCheckpoints(Seeds* seeds) {
  using namespace worker::checkpoint;
  Manifest manifest;
  manifest.job = "mnist";
  manifest.generation = 3;
  manifest.step = 120;
  manifest.id = 7;
  manifest.cursor = {1, 640};
  manifest.world_size = 2;
  manifest.state_hash = 0x1234567890abcdef;
  manifest.lineage = {{1, 0}, {3, 100}};
  manifest.metadata = {{"model", "cnn"}, {"seed", "1"}};
  manifest.written = "2026-01-31T12:00:00.123Z";
  Checksummer sums;
  sums.Add("some bytes");
  manifest.shards = {sums.Finish(), sums.Finish()};
  const std::string text = Must(EncodeManifest(manifest));
  seeds->Add("manifest", "two-shards", text);
  seeds->Add("manifest", "without-seal",
             std::string_view(text).substr(0, text.rfind("crc32c ")));
  Vote vote;
  vote.attempt = {3, 120, 7};
  vote.rank = 1;
  vote.world_size = 2;
  vote.cursor = {1, 640};
  vote.state_hash = 42;
  vote.shard = sums.Finish();
  const std::string word = EncodeVote(vote);
  seeds->Add("vote", "of-rank-1", word);
  seeds->Add("vote", "without-seal",
             std::string_view(word).substr(0, word.rfind("crc32c ")));

  const std::vector<float> weights = {1, 2, 3, 4, 5, 6};
  const std::vector<uint8_t> bytes = {1, 2, 3};
  const std::vector<TensorView> tensors = {
      {"weight", DType::kF32, {2, 3}, weights.data(), 24},
      {"mask", DType::kU8, {3}, bytes.data(), 3},
      {"empty", DType::kF64, {0}, nullptr, 0}};
  const std::string path = "/tmp/lockstep-fuzz-seed";
  FileSystem* const files = RealFileSystem();
  if (!SaveSafetensors(files, path, tensors, {{"format", "pt"}}).ok()) return;
  seeds->Add("safetensors", "three", Must(files->Read(path)));
  Snapshot snapshot;
  if (!snapshot.Copy(tensors).ok()) return;
  snapshot.AddBlob("rng", "state of the dice");
  ChecksummedFile file(Must(files->Create(path, 0600)), {});
  if (WriteShard({"mnist", {3, 120, 7}, 0, 2}, snapshot, &file).ok() &&
      file.SyncAndClose().ok()) {
    seeds->Add("shard", "of-rank-0", Must(files->Read(path)));
    seeds->Add("safetensors", "shard", Must(files->Read(path)));
  }
  (void)files->Remove(path);
}

void AddTasks(Seeds* seeds) {
  using namespace worker::task;
  TaskRecord record;
  record.job = "mnist";
  record.generation = 3;
  record.boot_id = "7c9f";
  record.shim = {100, 200};
  record.process = {101, 201};
  record.nonce = std::string(32, 'n');
  record.socket_path = "/run/s";
  record.log_path = "/var/log";
  record.exit_record_path = "/var/exit";
  record.page_path = "/var/page";
  record.cwd = "/tmp";
  record.ports = {12345, 12346};
  seeds->Add("task_record", "rank-0", EncodeTaskRecord(record));
  ExitRecord exit;
  exit.job = "mnist";
  exit.generation = 3;
  exit.process = {101, 201};
  exit.wait_status = 9;
  exit.kind = ExitKind::kSignaled;
  exit.message = "killed";
  exit.log_error = "no space";
  seeds->Add("exit_record", "killed", EncodeExitRecord(exit));
  exit.kind = ExitKind::kExited;
  exit.wait_status = 3 << 8;
  seeds->Add("exit_record", "exit-3", EncodeExitRecord(exit));
  ShimSpec spec;
  spec.job = "mnist";
  spec.generation = 3;
  spec.argv = {"/bin/sh", "-c", "true"};
  spec.env = {"PATH=/bin", "RANK=0"};
  spec.cwd = "/tmp";
  spec.set_ids = true;
  spec.uid = 1000;
  spec.gid = 1000;
  spec.groups = {10};
  spec.log_path = "/tmp/log";
  spec.task_record_path = "/tmp/task";
  spec.exit_record_path = "/tmp/exit";
  spec.socket_path = "/tmp/socket";
  spec.nonce = std::string(32, 'n');
  spec.secret = "secret";
  seeds->Add("shim_spec", "shell", EncodeShimSpec(spec));
  ShimRequest request;
  for (const auto kind :
       {ShimRequest::Kind::kHello, ShimRequest::Kind::kState,
        ShimRequest::Kind::kSignal, ShimRequest::Kind::kKillTree,
        ShimRequest::Kind::kForget}) {
    request.kind = kind;
    request.id = 1;
    request.nonce = std::string(32, 'n');
    request.signo = 15;
    seeds->Add("shim_messages", fmt::format("request-{}", int(kind)),
               EncodeShimRequest(request));
  }
  ShimReply reply;
  reply.phase = ShimReply::Phase::kExited;
  reply.shim = {100, 200};
  reply.exit_record = exit;
  seeds->Add("shim_messages", "exited", EncodeShimReply(reply));
  reply.kind = ShimReply::Kind::kRefused;
  reply.error = "wrong nonce";
  seeds->Add("shim_messages", "refused", EncodeShimReply(reply));

  const std::string path = "/tmp/lockstep-fuzz-seed";
  std::string error;
  auto writer = PageWriter::Create(path, 1, &error);
  task::RankProgress progress;
  progress.generation = 3;
  progress.step = 120;
  writer->SetProgress(progress);
  RankCounters counters;
  counters.has_loss = true;
  counters.last_loss = 0.5;
  counters.values = {{"accuracy", 0.9}};
  writer->SetCounters(counters);
  const std::string page = Must(RealFileSystem()->Read(path));
  seeds->Add("rank_page", "step-120", page);
  seeds->Add("rank_page", "cut", std::string_view(page).substr(0, 1000));
  (void)RealFileSystem()->Remove(path);
}

JobSpec Spec() {
  v1::JobSpec proto;
  proto.set_name("mnist");
  proto.set_kind(v1::JOB_KIND_NATIVE);
  proto.add_argv("lockstep-train");
  (*proto.mutable_environment())["EPOCHS"] = "3";
  proto.set_output_directory("/data/out");
  for (const auto type : {v1::TASK_TYPE_CHIEF, v1::TASK_TYPE_WORKER}) {
    v1::RoleSpec* role = proto.add_roles();
    role->set_type(type);
    role->set_count(1);
    role->mutable_resources()->set_cpus(1);
    role->mutable_resources()->set_memory_bytes(1 << 30);
  }
  proto.mutable_max_running_time()->set_seconds(3600);
  return Must(FromProto(proto));
}

Assignment SampleAssignment() {
  Assignment assignment;
  assignment.job = "mnist";
  assignment.job_uid = "uid1";
  assignment.generation = 3;
  assignment.epoch = 1;
  assignment.goal = Goal::kForget;
  return assignment;
}

GangStatus SampleStatus() {
  GangStatus status;
  status.job = "mnist";
  status.job_uid = "uid1";
  status.generation = 3;
  status.phase = GangPhase::kPrepared;
  status.ports = {12345};
  RankStatus rank;
  rank.progress = lockstep::RankProgress();
  status.ranks.push_back(rank);
  return status;
}

void AddMessages(Seeds* seeds) {
  const auto wire = [&](int which, const std::string& name,
                        const google::protobuf::Message& message) {
    seeds->Add(
        "wire", name,
        std::string(1, static_cast<char>(which)) + message.SerializeAsString());
  };
  wire(0, "job-spec", ToProto(Spec()));
  Registration registration;
  registration.node.name = "host-a";
  registration.node.incarnation = {1, 7};
  registration.node.boot_id = "boot";
  registration.node.hostname = "host-a.example";
  registration.node.version = "1";
  registration.node.address = "127.0.0.1";
  registration.node.http_address = "127.0.0.1:1";
  registration.node.capacity = {4, int64_t{8} << 30, 0, ""};
  registration.gangs = {SampleStatus()};
  wire(1, "register", ToProto(registration));
  wire(2, "gang-status", ToProto(SampleStatus()));
  NodeHeartbeat heartbeat;
  heartbeat.sequence = 1;
  heartbeat.readings.cpu_utilization = 0.5;
  heartbeat.readings.memory_available_bytes = 1 << 20;
  wire(3, "heartbeat", ToProto(heartbeat));
  wire(4, "welcome",
       ToProto(WelcomeInfo{1, std::chrono::seconds(1), std::chrono::seconds(3),
                           "local"}));
  wire(7, "assignment", ToProto(SampleAssignment()));
  wire(8, "log-chunk",
       ToProto(LogPiece{"mnist", "uid1", 3, 0, 10, "x\n", true}));
  wire(9, "log-ack", ToProto(LogAckInfo{"mnist", 3, 0, 12, true}));
  const RendezvousEntry entry{"mnist", 3, "key", "value"};
  wire(10, "put", ToRendezvousPut(entry));
  wire(11, "get", ToRendezvousGet(entry));
  wire(12, "value", ToRendezvousValue(entry));
  wire(22, "rank-status", ToProto(RankStatus()));

  StoredGang gang;
  gang.assignment = SampleAssignment();
  gang.status = SampleStatus();
  gang.link_nonces = {{0, std::string(32, 'n')}};
  seeds->Add("stored_gang", "one", EncodeStoredGang(gang));
  task::ByteWriter marks;
  marks.U32(2);
  for (const uint64_t at : {100, 400}) {
    marks.U64(at);
    marks.U64(at + 1000);
    marks.Str("gap\n");
  }
  seeds->Add("stored_gang", "marks", task::Seal("LSMARKS1", 1, marks.Take()));

  server::Job job;
  job.spec = Spec();
  job.uid = "uid1";
  job.owner = "user/ann";
  v1::StoredJob whole;
  std::string rows(1, '\3');
  for (const server::JobRow& row : ChangesOf(nullptr, job).written) {
    if (!AddRow(row.table, row.record, &whole).ok()) std::exit(1);
    rows += static_cast<char>(row.table);
    rows += static_cast<char>(row.record.size() % 256);
    rows += static_cast<char>(row.record.size() / 256);
    rows += row.record;
  }
  seeds->Add("store_record", "job",
             std::string(1, '\0') + whole.SerializeAsString());
  seeds->Add("store_record", "rows", rows);
  server::NodeRecord record;
  record.info = registration.node;
  seeds->Add("store_record", "node", std::string(1, '\1') + EncodeNode(record));
  server::AnsweredRequest request;
  request.client = "user/ann";
  request.method = "SubmitJob";
  seeds->Add("store_record", "request",
             std::string(1, '\2') + EncodeRequest(request));
}

void AddTexts(Seeds* seeds) {
  for (const char* uri :
       {"spiffe://local/coordinator/main", "spiffe://local/worker/host-a",
        "spiffe://local/user/admin/ann", "spiffe://local/user/root/ann",
        "spiffe://local/user//ann"}) {
    seeds->Add("identity", fmt::format("{}", std::strlen(uri)), uri);
  }
  const auto ca = pki::CertificateAuthority::Create(
      "test", FromUnixNanos(1'700'000'000'000'000'000));
  seeds->Add("x509", "ca",
             Must(pki::CertificateAuthority::Create(
                      "test", FromUnixNanos(1'700'000'000'000'000'000)))
                 .certificate());
  if (ca.ok()) {
    pki::LeafRequest request;
    request.identity = UserIdentity("test", pki::UserRole::kViewer, "ann");
    const auto leaf =
        Must(ca->Issue(request, FromUnixNanos(1'700'000'000'000'000'000)));
    seeds->Add("x509", "leaf", leaf.certificate);
    seeds->Add("x509", "key", leaf.key);
  }
  std::string line;
  cri::AppendLogLine(
      {1'700'000'000'123'456'789, cri::LogStream::kStderr, false, "some text"},
      &line);
  seeds->Add("log_line", "part", line);
  seeds->Add("log_line", "time", "2026-01-31T12:00:00.5+01:30");
  int n = 0;
  for (const char* text :
       {"512MiB", "1.5 GiB", "1h30m", "500ms", "0-3,5", "NAME=value",
        "2026-01-31T12:00:00Z", "127.0.0.1:7443", "[::1]:0", "32768\t60999\n",
        "step-000000120.g7", ".tmp-000000120.g7.3", "after:b"}) {
    seeds->Add("text", fmt::format("{}", n++), text);
  }
  seeds->Add("job_file", "native",
             "name: fashion\nkind: native\nroles:\n"
             "- {type: chief, count: 1, resources: {cpus: 1}}\n"
             "- {type: worker, count: 1, resources: {memoryBytes: 2GiB}}\n"
             "argv: [lockstep-train, --train, /data]\nmaxRunningTime: 2h\n"
             "environment: {EPOCHS: 3}\ncheckpoint: {keep: 3}\n");
  seeds->Add("job_file", "anchors",
             "name: a\nkind: program\nargv: &a [x, y]\nroles: [{type: worker, "
             "count: 2, argv: *a}]\nlabels: {a: b}\npriority: -1\n");
  seeds->Add("price_table", "all",
             "currency: EUR\ncore_hour: 0.04\ngpu_hour: 0.30\n"
             "gpu_hours: {T4: 0.35, V100: 2.48}\n");
  seeds->Add("training_file", "two-v100", kTwoV100);
  seeds->Add("training_file", "two-machines", kTwoMachines);
  seeds->Add("training_file", "package",
             "labels: {a: b}\ntrainingInput:\n  scaleTier: STANDARD_1\n"
             "  packageUris: [a.tar.gz]\n  pythonModule: a.b\n"
             "  runtimeVersion: '2.1'\n  args: [--epochs, 5]\n"
             "  jobDir: /d\n  scheduling: {maxRunningTime: 7200s}\n"
             "lockstep: {env: {A: 1}, ranksPerTask: gpu}\n");
  seeds->Add("machines_file", "all",
             "defaults: true\nmachines:\n  m: {cpus: 4, memory: 15GiB, "
             "mlUnits: 0.4, request: {cpus: 1, memory: 1GiB}}\n"
             "accelerators:\n  NVIDIA_TESLA_T4: {peakTflops: 65}\n");
  // Empty: what the target then says is right but for the name.
  seeds->Add("handshake", "echo", std::string(1, '\0'));
  seeds->Add("handshake", "rank-1", std::string(16, '\0') + "\1");
  seeds->Add("handshake", "config",
             std::string(16, '\0') + "\1" + std::string(71, '\0') + "x");
  seeds->Add("control_word", "zero", std::string(64, '\0'));
  seeds->Add("control_word", "nan", std::string(64, '\xff'));
  // A report, a put and a get of rank.proto.
  seeds->Add("rank_message", "put", "\x12\x0a\x0a\x01k\x12\x05value");
  seeds->Add("rank_message", "get", "\x1a\x03\x0a\x01k");
  seeds->Add("rank_message", "report", "\x2a\x05\x08\x05\x12\x01p");
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
    return 2;
  }
  lockstep::Seeds seeds(argv[1]);
  lockstep::AddData(&seeds);
  lockstep::AddCheckpoints(&seeds);
  lockstep::AddTasks(&seeds);
  lockstep::AddMessages(&seeds);
  lockstep::AddTexts(&seeds);
  return 0;
}
