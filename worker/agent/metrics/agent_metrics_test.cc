// What a scrape of a worker shows, with everything that a host may have:
// InfiniBand, eight GPUs that support all, ranks with a page and a cgroup.
#include "worker/agent/metrics/agent_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "common/http/metrics.h"
#include "worker/agent/metrics/node_metrics.h"
#include "worker/devices/fake_nvml_control.h"

namespace lockstep::worker::agent {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kGpus = 8;
// What the catalogue promises of one worker's series: docs/metrics-worker.md.
constexpr size_t kFixedBudget = 63;  // With up to four devices of each kind.
constexpr size_t kGpuBudget = 67;
constexpr size_t kRankBudget = 36;  // Of its page.
constexpr size_t kTaskBudget = 14;  // Of its process.
constexpr size_t kChiefBudget = 5;  // Rank 0 beyond that.
// Of a job whose chief is here; a histogram is one.
constexpr size_t kJobBudget = 8;

StatusOr<devices::HostReadings> FullHost() {
  LOCKSTEP_ASSIGN_OR_RETURN(devices::HostReadings host,
                            devices::ReadHostReadings());
  host.base.network.clear();
  for (const char* device : {"lo", "eth0", "eth1", "ib0", "ib1", "veth77"}) {
    host.base.network[device].receive_bytes = 5;
  }
  host.disks.clear();
  for (const char* disk : {"nvme0n1", "nvme1n1", "nvme2n1", "sda"}) {
    host.disks[disk].read_bytes = 7;
  }
  for (const char* port : {"mlx5_0/1", "mlx5_1/1", "mlx5_2/1", "mlx5_3/1"}) {
    host.infiniband[port].transmit_bytes = 9;
  }
  host.pressure = {{"cpu", 1}, {"memory", 2}, {"io", 3}};
  host.oom_kills = 1;
  return host;
}

TaskReading FullTask(int32_t rank) {
  TaskReading task;
  task.job = "mnist";
  task.role = "worker";
  task.index = rank;
  task.rank = rank;
  task.chief = rank == 0;
  task.restarts = 1;
  task.cpu_seconds = 12.5;
  task.processes = 3;
  task.network_sent_bytes = 700;
  task.network_received_bytes = 800;
  task.log.sent_bytes = 100;
  task.log.dropped_bytes = 11;
  task.log.gaps = 2;
  task.cgroup = TaskCgroupReading{2, 0.5};
  task.counters.emplace();
  for (size_t i = 0; i < task::kTimedPhases; ++i) {
    task.counters->phase_seconds[i] = static_cast<double>(i) + 1;
  }
  task.counters->allreduce_bytes = 4096;
  task.counters->samples = 640;
  task.counters->steps_committed = 10;
  task.counters->allreduce_busy_seconds = 4.5;
  task.counters->straggler_lag_seconds = -0.25;
  task.counters->input = {5000, 1, 3, 4, 6.5, 7.5};
  task.counters->checkpoint_bytes = 300;
  task.counters->checkpoint_failures = 2;
  task.counters->checkpoint_seconds = {0.5, 1.5, 2.5, 3.5, 4.5};
  task.counters->communication.late_rank = 5;
  task.counters->communication.late_waited_seconds = 0.125;
  for (size_t i = 0; i < task::kLateRanks; ++i) {
    task.counters->communication.longest_waits[i] = {
        static_cast<int32_t>(5 + i), 9, 11.25 - static_cast<double>(i)};
  }
  task.counters->communication.straggler = {5, 100, 90, 0.375};
  task.counters->communication.bus_bytes_per_second = 2e9;
  for (const double seconds : {0.002, 0.002, 0.5, 500.0}) {
    task.counters->step_times.Observe(seconds);
    task.counters->checkpoint_times[1].Observe(seconds);
  }
  task.gpus = {rank};
  return task;
}

std::string Text(const std::vector<MetricFamily>& families) {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families);
  return out.str();
}

// promtool's exit code: 0 clean, 1 not the format, 3 against a convention.
int Promtool(const std::string& text, std::string* output) {
  char name[] = "/tmp/lockstep-promtool-XXXXXX";
  close(mkstemp(name));
  const std::string path = name;
  std::ofstream(path) << text;
  const int status =
      system(("promtool check metrics < " + path + " > " + path + ".out 2>&1")
                 .c_str());
  std::ostringstream out;
  out << std::ifstream(path + ".out").rdbuf();
  *output = out.str();
  unlink(path.c_str());
  unlink((path + ".out").c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class AgentMetricsTest : public testing::Test {
 protected:
  void SetUp() override {
    devices::GpuSamplerOptions options;
    options.library = LOCKSTEP_FAKE_NVML;
    options.period = std::chrono::milliseconds(10);
    // More than a busy machine keeps the sampler's thread waiting.
    options.stale_after = std::chrono::seconds(2);
    auto sampler = devices::GpuSampler::Open(options);
    ASSERT_TRUE(sampler.ok()) << sampler.status();
    gpus_ = *std::move(sampler);
    metrics_ = std::make_shared<AgentMetrics>(AgentMetrics::Options{
        gpus_.get(), "host-1", "/tmp", [] { return FullHost(); }});
    AgentReadings readings;
    for (int32_t rank = 0; rank < kGpus; ++rank) {
      readings.tasks.push_back(FullTask(rank));
    }
    readings.connected = true;
    readings.certificate_end = 2e9;
    metrics_->Set(readings);
    ASSERT_TRUE(Eventually([&] {
      const devices::GpuStatus status = gpus_->Latest(MonotonicNow());
      // The last one has what is measured between two readings.
      return !status.readings.empty() && !status.xids.empty() &&
             status.readings.back().Get(devices::GpuValue::kSmActivity);
    }));
  }

  static bool Eventually(const std::function<bool()>& condition) {
    const MonoTime deadline = MonotonicNow() + std::chrono::seconds(20);
    while (!condition()) {
      if (MonotonicNow() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
  }
  // As /metrics has it.
  std::vector<MetricFamily> Page() const {
    std::vector<MetricFamily> families = metrics_->Collect();
    for (MetricFamily& family :
         http::ProcessCollector("lockstep-worker").Collect()) {
      families.push_back(std::move(family));
    }
    const auto server = http::HttpServer::Create({.address = "127.0.0.1:0"});
    for (MetricFamily& family : http::HttpCollector(server->get()).Collect()) {
      families.push_back(std::move(family));
    }
    return families;
  }
  std::string PageText() const { return Text(Page()); }
  bool Shows(const std::string& line) const {
    return PageText().find(line) != std::string::npos;
  }

  devices::FakeNvmlControl fake_{kGpus, "H100"};
  std::unique_ptr<devices::GpuSampler> gpus_;
  std::shared_ptr<AgentMetrics> metrics_;
};

TEST_F(AgentMetricsTest, PromtoolFindsNothing) {
  std::string output;
  EXPECT_EQ(Promtool(PageText(), &output), 0) << output;
  EXPECT_EQ(output, "");
  // Names that others chose: the format alone can be right.
  EXPECT_THAT(Promtool(Text(DcgmMetrics(metrics_).Collect()), &output),
              testing::AnyOf(0, 3))
      << output;
  EXPECT_THAT(Promtool(Text(NodeMetrics().Collect()), &output),
              testing::AnyOf(0, 3))
      << output;
}

TEST_F(AgentMetricsTest, SeriesStayWithinTheBudget) {
  size_t fixed = 0;
  size_t of_job = 0;
  std::map<std::string, size_t> by_gpu;
  std::map<std::string, size_t> by_rank;
  std::map<std::string, size_t> by_task;
  for (const MetricFamily& family : Page()) {
    for (const auto& metric : family.metric) {
      std::string gpu, rank, role, job;
      for (const auto& label : metric.label) {
        if (label.name == "gpu") gpu = label.value;
        if (label.name == "rank") rank = label.value;
        if (label.name == "role") role = label.value;
        if (label.name == "job_id") job = label.value;
      }
      if (!gpu.empty()) {
        ++by_gpu[gpu];
      } else if (!role.empty()) {
        ++by_task[rank];
      } else if (!rank.empty()) {
        ++by_rank[rank];
      } else if (!job.empty()) {
        ++of_job;
      } else {
        ++fixed;
      }
    }
  }
  EXPECT_LE(fixed, kFixedBudget);
  EXPECT_LE(of_job, kJobBudget);
  ASSERT_EQ(by_gpu.size(), size_t{kGpus});
  for (const auto& [gpu, count] : by_gpu) EXPECT_LE(count, kGpuBudget) << gpu;
  ASSERT_EQ(by_rank.size(), size_t{kGpus});
  for (const auto& [rank, count] : by_rank) {
    EXPECT_LE(count, kRankBudget + (rank == "0" ? kChiefBudget : 0)) << rank;
    EXPECT_LE(by_task[rank], kTaskBudget) << rank;
  }
}

TEST_F(AgentMetricsTest, NoLabelOfTheScraperAndNoSeriesTwice) {
  std::set<std::string> families;
  for (const MetricFamily& family : Page()) {
    EXPECT_TRUE(families.insert(family.name).second) << family.name;
    EXPECT_NE(family.help, "") << family.name;
    std::set<std::string> series;
    for (const auto& metric : family.metric) {
      std::string key;
      for (const auto& label : metric.label) {
        EXPECT_NE(label.name, "job");
        EXPECT_NE(label.name, "instance");
        EXPECT_NE(label.name, "node");
        key += label.name + "=" + label.value + ",";
      }
      EXPECT_TRUE(series.insert(key).second) << family.name << key;
    }
  }
}

// A row of the table is | `name` | type | labels | meaning |.
TEST_F(AgentMetricsTest, TheDocumentNamesWhatThereIs) {
  const char* source = getenv("LOCKSTEP_SOURCE");
  ASSERT_NE(source, nullptr);
  std::set<std::string> documented;
  std::ifstream file(std::string(source) + "/docs/metrics-worker.md");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("| `lockstep_", 0) != 0 &&
        line.rfind("| `process_", 0) != 0) {
      continue;
    }
    size_t end = 0;
    for (int i = 0; i < 4; ++i) end = line.find('|', end + (i > 0 ? 1 : 0));
    documented.insert(line.substr(0, end + 1));
  }
  std::set<std::string> shown;
  for (const MetricFamily& family : Page()) {
    std::string labels;
    for (const auto& label : family.metric.at(0).label) {
      labels += (labels.empty() ? "" : ", ") + label.name;
    }
    const char* type = family.type == MetricType::Counter     ? "counter"
                       : family.type == MetricType::Histogram ? "histogram"
                                                              : "gauge";
    shown.insert("| `" + family.name + "` | " + type + " | " + labels + " |");
  }
  for (const std::string& row : shown) {
    EXPECT_TRUE(documented.contains(row)) << "not in the document: " << row;
  }
  for (const std::string& row : documented) {
    EXPECT_TRUE(shown.contains(row)) << "not on /metrics: " << row;
  }
}

TEST_F(AgentMetricsTest, StepsAndCheckpointsOfAJobAreItsChiefs) {
  for (const char* line : {
           "lockstep_step_seconds_count{job_id=\"mnist\"} 4",
           "lockstep_step_seconds_bucket{job_id=\"mnist\",le=\"0.001\"} 0",
           "lockstep_step_seconds_bucket{job_id=\"mnist\",le=\"0.00316\"} 2",
           "lockstep_step_seconds_bucket{job_id=\"mnist\",le=\"+Inf\"} 4",
           "lockstep_step_seconds_sum{job_id=\"mnist\"} 500.504",
           "lockstep_checkpoint_seconds_count{job_id=\"mnist\","
           "phase=\"write\"} 4",
           "lockstep_checkpoint_seconds_count{job_id=\"mnist\","
           "phase=\"fsync\"} 0",
           "lockstep_allreduce_bus_bandwidth_bytes_per_second{"
           "job_id=\"mnist\"} 2000000000",
           "lockstep_late_rank_cost_ratio{job_id=\"mnist\"} 0.375",
           "lockstep_late_rank{job_id=\"mnist\",rank=\"3\"} 5",
           "lockstep_late_rank_wait_seconds{job_id=\"mnist\",rank=\"3\"} "
           "0.125",
       }) {
    EXPECT_TRUE(Shows(line)) << line;
  }
}

// Rank 0 is away, on another node.
TEST_F(AgentMetricsTest, AnotherRankMayBeTheChief) {
  TaskReading task = FullTask(3);
  const auto steps = [&] {
    AgentReadings readings;
    readings.tasks = {task};
    metrics_->Set(readings);
    return PageText().find(
               "lockstep_step_seconds_count{job_id=\"mnist\"} "
               "4") != std::string::npos;
  };
  EXPECT_FALSE(steps());
  task.chief = true;
  EXPECT_TRUE(steps());
}

TEST_F(AgentMetricsTest, WhomARankWaitedFor) {
  const std::string name = "lockstep_late_rank_waited_seconds_total";
  const std::string of = name + "{job_id=\"mnist\",rank=\"3\",late_rank=";
  EXPECT_TRUE(Shows(of + "\"5\"} 11.25"));
  EXPECT_TRUE(Shows(of + "\"12\"} 4.25"));
  // Unused places of the list are not ranks.
  AgentReadings readings;
  readings.tasks.push_back(FullTask(3));
  for (size_t i = 1; i < task::kLateRanks; ++i) {
    readings.tasks[0].counters->communication.longest_waits[i] = {};
  }
  metrics_->Set(readings);
  const std::string page = PageText();
  EXPECT_THAT(page, HasSubstr(of + "\"5\"} 11.25"));
  EXPECT_EQ(page.find(name + "{"), page.rfind(name + "{"));
}

TEST_F(AgentMetricsTest, GpusAndTheirJobs) {
  const std::string one =
      "gpu=\"3\",uuid=\"GPU-4\",model=\"NVIDIA H100 80GB HBM3\"";
  const std::string page = PageText();
  EXPECT_THAT(page,
              HasSubstr("lockstep_gpu_utilization_ratio{" + one + "} 0.75"));
  EXPECT_THAT(page,
              HasSubstr("lockstep_gpu_sm_active_ratio{" + one + "} 0.61"));
  EXPECT_THAT(page,
              HasSubstr("lockstep_gpu_tensor_active_ratio{" + one + "} 0.42"));
  EXPECT_THAT(page, HasSubstr("lockstep_gpu_temperature_celsius{" + one +
                              ",sensor=\"memory\"} 60"));
  EXPECT_THAT(page, HasSubstr("lockstep_gpu_throttle_active{" + one +
                              ",reason=\"power_cap\"} 0"));
  EXPECT_THAT(page, HasSubstr("lockstep_gpu_xid_errors_total{" + one +
                              ",xid=\"79\"} 0"));
  EXPECT_THAT(page, HasSubstr("lockstep_gpu_up{" + one + "} 1"));
  EXPECT_THAT(page, HasSubstr("lockstep_gpu_allocated{" + one + "} 1"));
  EXPECT_THAT(page,
              HasSubstr("lockstep_gpu_allocation{gpu=\"3\",job_id=\"mnist\","
                        "rank=\"3\"} 1"));
  // After the rank's end nobody holds the GPU.
  AgentReadings readings;
  readings.tasks.push_back(FullTask(3));
  readings.tasks[0].ended = true;
  metrics_->Set(readings);
  EXPECT_THAT(PageText(), Not(HasSubstr("lockstep_gpu_allocation{")));
  EXPECT_THAT(PageText(), HasSubstr("lockstep_gpu_allocated{" + one + "} 0"));
}

TEST_F(AgentMetricsTest, AnXidIsCounted) {
  fake_.Write("xid 2 48\n");
  EXPECT_TRUE(Eventually([&] {
    return Shows(
        "lockstep_gpu_xid_errors_total{gpu=\"2\",uuid=\"GPU-3\",model=\"NVIDIA "
        "H100 80GB HBM3\",xid=\"48\"} 1");
  })) << PageText();
}

TEST_F(AgentMetricsTest, OfADriverThatHangsOnlyThatItHangs) {
  fake_.Write("hang all\n");
  EXPECT_TRUE(Eventually([&] {
    return PageText().find("lockstep_gpu_power_watts") == std::string::npos;
  }));
  const std::string page = PageText();
  EXPECT_THAT(page, HasSubstr("lockstep_gpu_sampler_age_seconds"));
  EXPECT_THAT(page, HasSubstr("lockstep_gpu_up{gpu=\"0\",uuid=\"GPU-1\",model="
                              "\"NVIDIA H100 80GB HBM3\"} 0"));
  EXPECT_THAT(page, HasSubstr("lockstep_host_load1"));
  fake_.Write("");
}

TEST_F(AgentMetricsTest, RanksByPhase) {
  const std::string page = PageText();
  EXPECT_THAT(page, HasSubstr("lockstep_step_phase_seconds_total{job_id="
                              "\"mnist\",rank=\"1\",phase=\"input_wait\"} 1"));
  EXPECT_THAT(page,
              HasSubstr("lockstep_allreduce_seconds_total{job_id=\"mnist\","
                        "rank=\"1\",kind=\"exposed\"} 3"));
  EXPECT_THAT(page,
              HasSubstr("lockstep_allreduce_seconds_total{job_id=\"mnist\","
                        "rank=\"1\",kind=\"busy\"} 4.5"));
  EXPECT_THAT(page, HasSubstr("lockstep_straggler_lag_seconds{job_id="
                              "\"mnist\",rank=\"1\"} -0.25"));
  EXPECT_THAT(page, HasSubstr("lockstep_input_records_total{job_id=\"mnist\","
                              "rank=\"1\"} 640"));
  EXPECT_THAT(page,
              HasSubstr("lockstep_task_restarts_total{job_id=\"mnist\",role="
                        "\"worker\",index=\"1\",rank=\"1\"} 1"));
  EXPECT_THAT(page, HasSubstr("lockstep_task_processes{job_id=\"mnist\",role="
                              "\"worker\",index=\"1\",rank=\"1\"} 3"));
  EXPECT_THAT(page, HasSubstr("lockstep_step_phase_seconds_total{job_id="
                              "\"mnist\",rank=\"1\",phase=\"compile\"} 9"));
  for (const char* const line : {"rank=\"1\",direction=\"sent\"} 700",
                                 "rank=\"1\",direction=\"received\"} 800"}) {
    EXPECT_THAT(page, HasSubstr(std::string("lockstep_task_network_bytes_total{"
                                            "job_id=\"mnist\",role=\"worker\","
                                            "index=\"1\",") +
                                line));
  }
  // A program without a page has no steps.
  AgentReadings readings;
  readings.tasks.push_back(FullTask(0));
  readings.tasks[0].counters.reset();
  readings.tasks[0].cgroup.reset();
  readings.tasks[0].network_sent_bytes.reset();
  metrics_->Set(readings);
  EXPECT_THAT(PageText(), Not(HasSubstr("lockstep_task_network")));
  EXPECT_THAT(PageText(), Not(HasSubstr("lockstep_step_phase")));
  EXPECT_THAT(PageText(), Not(HasSubstr("lockstep_task_oom_kills")));
  EXPECT_THAT(PageText(), HasSubstr("lockstep_task_cpu_seconds_total"));
}

TEST_F(AgentMetricsTest, InputAndCheckpointsOfARank) {
  const std::string page = PageText();
  for (const char* line :
       {"lockstep_input_bytes_total{job_id=\"mnist\",rank=\"1\"} 5000",
        "lockstep_input_corrupt_records_total{job_id=\"mnist\",rank=\"1\"} 1",
        "lockstep_input_queue_depth{job_id=\"mnist\",rank=\"1\"} 3",
        "lockstep_input_queue_capacity{job_id=\"mnist\",rank=\"1\"} 4",
        "lockstep_input_stage_seconds_total{job_id=\"mnist\",rank=\"1\",stage="
        "\"read\"} 6.5",
        "lockstep_input_stage_seconds_total{job_id=\"mnist\",rank=\"1\",stage="
        "\"decode\"} 7.5",
        "lockstep_rank_checkpoint_bytes_total{job_id=\"mnist\",rank=\"1\"} "
        "300",
        "lockstep_checkpoint_failures_total{job_id=\"mnist\",rank=\"1\"} 2",
        "lockstep_checkpoint_phase_seconds_total{job_id=\"mnist\",rank=\"0\","
        "phase=\"fsync\"} 2.5"}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
  EXPECT_THAT(page, Not(HasSubstr("lockstep_checkpoint_phase_seconds_total{"
                                  "job_id=\"mnist\",rank=\"1\"")));
}

// Two daemons of a host that share its GPUs must not both show all of them.
TEST_F(AgentMetricsTest, OnlyGpusThatAreOffered) {
  const auto sharing = std::make_shared<AgentMetrics>(AgentMetrics::Options{
      gpus_.get(), "host-1", "/tmp", [] { return FullHost(); },
      std::vector<Gpu>{gpus_->gpus()[5], gpus_->gpus()[2]}});
  fake_.Write("xid 5 79\n");
  std::string page;
  EXPECT_TRUE(Eventually([&] {
    page = Text(sharing->Collect());
    return page.find("GPU-6\",model=\"NVIDIA H100 80GB HBM3\",xid=\"79\"} 1") !=
           std::string::npos;
  })) << page;
  size_t up = 0;
  for (const MetricFamily& family : sharing->Collect()) {
    if (family.name == "lockstep_gpu_up") up = family.metric.size();
  }
  EXPECT_EQ(up, 2u);
  EXPECT_THAT(page, HasSubstr("lockstep_gpu_utilization_ratio{gpu=\"2\",uuid="
                              "\"GPU-3\""));
  EXPECT_THAT(page, Not(HasSubstr("uuid=\"GPU-4\"")));
  const std::string dcgm = Text(DcgmMetrics(sharing).Collect());
  EXPECT_THAT(dcgm, HasSubstr("gpu=\"5\",UUID=\"GPU-6\",pci_bus_id=\"00000000:"
                              "15:00.0\""));
  EXPECT_THAT(dcgm, Not(HasSubstr("UUID=\"GPU-4\"")));
  // None offered: as on a host without any.
  const AgentMetrics none(AgentMetrics::Options{gpus_.get(), "host-1", "/tmp",
                                                [] { return FullHost(); },
                                                std::vector<Gpu>{}});
  EXPECT_THAT(Text(none.Collect()), Not(HasSubstr("lockstep_gpu_")));
  fake_.Write("");
}

TEST_F(AgentMetricsTest, DcgmsNamesLabelsAndUnits) {
  fake_.Write("xid 3 79\n");
  std::string page;
  EXPECT_TRUE(Eventually([&] {
    page = Text(DcgmMetrics(metrics_).Collect());
    return page.find("DCGM_EXP_XID_ERRORS_COUNT") != std::string::npos;
  }));
  const std::string labels =
      "{gpu=\"3\",UUID=\"GPU-4\",pci_bus_id=\"00000000:13:00.0\",device="
      "\"nvidia3\",modelName=\"NVIDIA H100 80GB HBM3\",Hostname=\"host-1\","
      "hostname=\"host-1\",DCGM_FI_DRIVER_VERSION=\"535.247.01\",hpc_job="
      "\"mnist\"} ";
  for (const char* sample :
       {"DCGM_FI_DEV_GPU_UTIL 75", "DCGM_FI_DEV_MEM_COPY_UTIL 30",
        "DCGM_FI_DEV_FB_USED 4096", "DCGM_FI_DEV_FB_RESERVED 512",
        "DCGM_FI_DEV_POWER_USAGE 70.5",
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION 1000000",
        "DCGM_FI_DEV_SM_CLOCK 1500", "DCGM_FI_DEV_GPU_TEMP 55",
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL 0",
        "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL 11000",
        "DCGM_FI_PROF_SM_ACTIVE 0.61", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE 0.42",
        "DCGM_FI_DEV_XID_ERRORS 79"}) {
    std::string line = sample;
    line.replace(line.find(' '), 1, labels);
    EXPECT_THAT(page, HasSubstr(line + "\n"));
  }
}

TEST(NodeMetricsTest, NodeExportersNames) {
  const std::string page = Text(NodeMetrics().Collect());
  for (const char* start :
       {"node_cpu_seconds_total{cpu=\"", "node_load1 ",
        "node_memory_MemAvailable_bytes ", "node_memory_MemTotal_bytes ",
        "node_network_receive_bytes_total{device=\"lo\"} ",
        "node_boot_time_seconds ", "node_uname_info{sysname=\"Linux\""}) {
    EXPECT_THAT(page, HasSubstr(std::string("\n") + start));
  }
}

class TaskCgroupTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-cgroup-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    root_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void Put(const std::string& path, const std::string& text) {
    const auto full = std::filesystem::path(root_ + "/" + path);
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }

  std::string root_;
};

TEST_F(TaskCgroupTest, OfItsOwnOnly) {
  Put("proc/1/cgroup", "0::/system.slice/lockstep-worker.service\n");
  Put("proc/2/cgroup", "5:cpu:/x\n0::/lockstep.slice/rank0.scope\n");
  Put("proc/3/cgroup", "0::/system.slice/lockstep-worker.service\n");
  Put("proc/4/cgroup", "5:cpu:/x\n");
  EXPECT_EQ(OwnCgroup(2, 1, root_),
            root_ + "/sys/fs/cgroup/lockstep.slice/rank0.scope");
  EXPECT_FALSE(OwnCgroup(3, 1, root_).has_value());
  EXPECT_FALSE(OwnCgroup(4, 1, root_).has_value());
  EXPECT_FALSE(OwnCgroup(5, 1, root_).has_value());
}

TEST_F(TaskCgroupTest, ItsCounts) {
  Put("c/memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 0\n");
  Put("c/cpu.stat", "usage_usec 5\nthrottled_usec 1500000\n");
  EXPECT_EQ(ReadTaskCgroup(root_ + "/c"), (TaskCgroupReading{2, 1.5}));
  EXPECT_FALSE(ReadTaskCgroup(root_ + "/none").has_value());
}

}  // namespace
}  // namespace lockstep::worker::agent
