// lockstep-stacks PID: prints the stacks of all threads of a process, in the
// form that ParseNativeStacks (stacks.h) reads.
//
// It seizes the threads (PTRACE_SEIZE), which leaves no signal behind, whatever
// happens to this program: they go on when it ends. As root it becomes the
// user of the process once it holds the threads, because the files that it then
// reads are that user's, and libdw was not written for hostile ones.
#include <cxxabi.h>
#include <dirent.h>
#include <dwarf.h>
#include <elfutils/libdwfl.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace lockstep::worker::evidence {
namespace {

constexpr size_t kMostThreads = 64;
constexpr int kMostFrames = 128;
// For a thread to stop; one in the kernel may not.
constexpr int kStopMillis = 300;

std::vector<pid_t> ThreadsOf(pid_t pid) {
  std::vector<pid_t> threads;
  const std::string path = "/proc/" + std::to_string(pid) + "/task";
  DIR* const dir = opendir(path.c_str());
  if (dir == nullptr) return threads;
  while (const dirent* entry = readdir(dir)) {
    const pid_t id = atoi(entry->d_name);
    if (id > 0 && threads.size() < kMostThreads) threads.push_back(id);
  }
  closedir(dir);
  return threads;
}

bool Stops(pid_t thread) {
  for (int i = 0; i < kStopMillis; ++i) {
    int status = 0;
    if (waitpid(thread, &status, __WALL | WNOHANG) == thread) {
      return WIFSTOPPED(status);
    }
    const timespec wait = {0, 1'000'000};
    nanosleep(&wait, nullptr);
  }
  return false;
}

// Returns those that are stopped now; errno is the last error.
std::vector<pid_t> Seize(const std::vector<pid_t>& threads) {
  std::vector<pid_t> asked;
  for (const pid_t thread : threads) {
    if (ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) == 0 &&
        ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) == 0) {
      asked.push_back(thread);
    }
  }
  const int error = errno;
  std::vector<pid_t> stopped;
  for (const pid_t thread : asked) {
    if (Stops(thread)) stopped.push_back(thread);
  }
  errno = error;
  return stopped;
}

bool BecomeUserOf(pid_t pid) {
  if (geteuid() != 0) return true;
  struct stat info {};
  if (stat(("/proc/" + std::to_string(pid)).c_str(), &info) != 0) return false;
  if (info.st_uid == 0) return true;
  return setgroups(0, nullptr) == 0 &&
         setresgid(info.st_gid, info.st_gid, info.st_gid) == 0 &&
         setresuid(info.st_uid, info.st_uid, info.st_uid) == 0;
}

// No other files than those that the process has mapped.
int FindNoDebugFile(Dwfl_Module*, void**, const char*, Dwarf_Addr, const char*,
                    const char*, GElf_Word, char**) {
  return -1;
}

std::string BaseOf(const char* path) {
  if (path == nullptr) return "";
  const char* const slash = strrchr(path, '/');
  std::string name = slash == nullptr ? path : slash + 1;
  for (char& c : name) {
    if (static_cast<unsigned char>(c) < 0x20) c = '?';
  }
  return name;
}

std::string Demangled(const char* name) {
  if (name == nullptr) return "?";
  int status = 0;
  char* const text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string result = status == 0 && text != nullptr ? text : name;
  free(text);
  for (char& c : result) {
    if (static_cast<unsigned char>(c) < 0x20) c = '?';
  }
  return result;
}

bool IsSystemHeader(const char* path) {
  return path != nullptr && strncmp(path, "/usr/", 5) == 0;
}

struct Place {
  std::string file;
  int line = 0;
};

// The line at `at`. Of code that a system header put there, the line that uses
// it: "atomic_base.h" tells nothing about the program.
Place PlaceAt(Dwfl_Module* module, Dwarf_Addr at) {
  Place place;
  Dwfl_Line* const source = dwfl_module_getsrc(module, at);
  if (source == nullptr) return place;
  const char* const path =
      dwfl_lineinfo(source, nullptr, &place.line, nullptr, nullptr, nullptr);
  place.file = BaseOf(path);
  if (!IsSystemHeader(path)) return place;
  Dwarf_Addr bias = 0;
  Dwarf_Die* const unit = dwfl_module_addrdie(module, at, &bias);
  Dwarf_Files* files = nullptr;
  size_t file_count = 0;
  if (unit == nullptr || dwarf_getsrcfiles(unit, &files, &file_count) != 0) {
    return place;
  }
  Dwarf_Die* scopes = nullptr;
  const int scope_count = dwarf_getscopes(unit, at - bias, &scopes);
  for (int i = 0; i < scope_count; ++i) {
    if (dwarf_tag(&scopes[i]) != DW_TAG_inlined_subroutine) continue;
    Dwarf_Attribute attribute;
    Dwarf_Word file = 0;
    Dwarf_Word line = 0;
    if (dwarf_formudata(dwarf_attr(&scopes[i], DW_AT_call_file, &attribute),
                        &file) != 0 ||
        dwarf_formudata(dwarf_attr(&scopes[i], DW_AT_call_line, &attribute),
                        &line) != 0) {
      continue;
    }
    const char* const caller = dwarf_filesrc(files, file, nullptr, nullptr);
    if (caller == nullptr || IsSystemHeader(caller)) continue;
    place = {BaseOf(caller), static_cast<int>(line)};
    break;
  }
  free(scopes);
  return place;
}

struct Walk {
  Dwfl* dwfl = nullptr;
  std::string program;
  int frames = 0;
};

int PrintFrame(Dwfl_Frame* frame, void* data) {
  auto* const walk = static_cast<Walk*>(data);
  Dwarf_Addr pc = 0;
  bool activation = false;
  if (!dwfl_frame_pc(frame, &pc, &activation)) return DWARF_CB_ABORT;
  // A return address is behind the call.
  const Dwarf_Addr at = pc - (activation ? 0 : 1);
  Dwfl_Module* const module = dwfl_addrmodule(walk->dwfl, at);
  Place place;
  const char* path = nullptr;
  const char* function = nullptr;
  if (module != nullptr) {
    // The path of its file; that of the main file is known later.
    path = dwfl_module_info(module, nullptr, nullptr, nullptr, nullptr, nullptr,
                            nullptr, nullptr);
    function = dwfl_module_addrname(module, at);
    place = PlaceAt(module, at);
  }
  const std::string name = BaseOf(path);
  printf("frame %s\t%s\t%s\t%d\t%s\n", name.c_str(),
         Demangled(function).c_str(), place.file.c_str(), place.line,
         name == walk->program ? "program" : "library");
  return ++walk->frames < kMostFrames ? DWARF_CB_OK : DWARF_CB_ABORT;
}

std::string ProgramOf(pid_t pid) {
  char path[4096];
  const ssize_t size =
      readlink(("/proc/" + std::to_string(pid) + "/exe").c_str(), path,
               sizeof(path) - 1);
  if (size <= 0) return "";
  path[size] = '\0';
  return BaseOf(path);
}

int Fail(const char* what, const char* why) {
  fprintf(stderr, "%s: %s\n", what, why);
  return 1;
}

int Run(pid_t pid) {
  const std::string program = ProgramOf(pid);
  const std::vector<pid_t> threads = ThreadsOf(pid);
  if (threads.empty()) return Fail("looking for threads", strerror(ESRCH));
  const std::vector<pid_t> stopped = Seize(threads);
  if (stopped.empty()) return Fail("holding the threads", strerror(errno));
  if (!BecomeUserOf(pid)) return Fail("changing the user", strerror(errno));
  Dwfl_Callbacks callbacks{};
  callbacks.find_elf = dwfl_linux_proc_find_elf;
  callbacks.find_debuginfo = FindNoDebugFile;
  Dwfl* const dwfl = dwfl_begin(&callbacks);
  if (dwfl == nullptr) return Fail("libdw", dwfl_errmsg(-1));
  if (const int error = dwfl_linux_proc_report(dwfl, pid); error != 0) {
    return Fail("reading its memory map",
                error > 0 ? strerror(error) : dwfl_errmsg(-1));
  }
  if (dwfl_report_end(dwfl, nullptr, nullptr) != 0 ||
      dwfl_linux_proc_attach(dwfl, pid, /*assume_ptrace_stopped=*/true) != 0) {
    return Fail("libdw", dwfl_errmsg(-1));
  }
  for (const pid_t thread : stopped) {
    printf("thread %d\n", thread);
    Walk walk{dwfl, program, 0};
    // Ends with an error behind the last frame of most stacks.
    (void)dwfl_getthread_frames(dwfl, thread, PrintFrame, &walk);
    (void)ptrace(PTRACE_DETACH, thread, nullptr, nullptr);
  }
  return fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace
}  // namespace lockstep::worker::evidence

int main(int argc, char** argv) {
  const int pid = argc == 2 ? atoi(argv[1]) : 0;
  if (pid <= 0) {
    fprintf(stderr, "usage: lockstep-stacks PID\n");
    return 2;
  }
  // Should the daemon die meanwhile, it ends all the same.
  alarm(10);
  return lockstep::worker::evidence::Run(pid);
}
