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

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
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

// The addresses of a thread's frames, innermost first.
struct Stack {
  pid_t thread = 0;
  std::vector<Dwarf_Addr> addresses;
};

int AddFrame(Dwfl_Frame* frame, void* data) {
  auto* const stack = static_cast<Stack*>(data);
  Dwarf_Addr pc = 0;
  bool activation = false;
  if (!dwfl_frame_pc(frame, &pc, &activation)) return DWARF_CB_ABORT;
  // A return address is behind the call.
  stack->addresses.push_back(pc - (activation ? 0 : 1));
  return stack->addresses.size() < kMostFrames ? DWARF_CB_OK : DWARF_CB_ABORT;
}

// The functions at some addresses of a module. libdw looks through all symbols
// of a module for each address, which takes seconds in a library with a million
// of them: this looks through them once for all addresses.
void FindFunctions(Dwfl_Module* module, const std::vector<Dwarf_Addr>& sorted,
                   std::map<Dwarf_Addr, const char*>* functions) {
  const int count = dwfl_module_getsymtab(module);
  for (int i = 0; i < count; ++i) {
    GElf_Sym symbol;
    GElf_Addr start = 0;
    const char* const name = dwfl_module_getsym_info(module, i, &symbol, &start,
                                                     nullptr, nullptr, nullptr);
    if (name == nullptr || symbol.st_size == 0 ||
        GELF_ST_TYPE(symbol.st_info) != STT_FUNC) {
      continue;
    }
    for (auto at = std::lower_bound(sorted.begin(), sorted.end(), start);
         at != sorted.end() && *at < start + symbol.st_size; ++at) {
      functions->try_emplace(*at, name);
    }
  }
}

// By the frames' addresses.
std::map<Dwarf_Addr, const char*> FunctionsOf(
    Dwfl* dwfl, const std::vector<Stack>& stacks) {
  std::map<Dwfl_Module*, std::set<Dwarf_Addr>> modules;
  for (const Stack& stack : stacks) {
    for (const Dwarf_Addr at : stack.addresses) {
      modules[dwfl_addrmodule(dwfl, at)].insert(at);
    }
  }
  std::map<Dwarf_Addr, const char*> functions;
  for (const auto& [module, addresses] : modules) {
    if (module == nullptr) continue;
    FindFunctions(module, {addresses.begin(), addresses.end()}, &functions);
  }
  return functions;
}

// MODULE<tab>FUNCTION<tab>FILE<tab>LINE<tab>library|program.
std::string FrameText(Dwfl_Module* module, Dwarf_Addr at, const char* function,
                      const std::string& program) {
  Place place;
  const char* path = nullptr;
  if (module != nullptr) {
    // The path of its file; that of the main file is known later.
    path = dwfl_module_info(module, nullptr, nullptr, nullptr, nullptr, nullptr,
                            nullptr, nullptr);
    place = PlaceAt(module, at);
  }
  const std::string name = BaseOf(path);
  return name + "\t" + Demangled(function) + "\t" + place.file + "\t" +
         std::to_string(place.line) + "\t" +
         (name == program ? "program" : "library");
}

// The threads run again meanwhile.
void Print(Dwfl* dwfl, const std::vector<Stack>& stacks,
           const std::string& program) {
  const std::map<Dwarf_Addr, const char*> functions = FunctionsOf(dwfl, stacks);
  std::map<Dwarf_Addr, std::string> texts;
  for (const Stack& stack : stacks) {
    printf("thread %d\n", stack.thread);
    for (const Dwarf_Addr at : stack.addresses) {
      const auto [text, is_new] = texts.try_emplace(at);
      if (is_new) {
        const auto function = functions.find(at);
        text->second = FrameText(
            dwfl_addrmodule(dwfl, at), at,
            function == functions.end() ? nullptr : function->second, program);
      }
      printf("frame %s\n", text->second.c_str());
    }
  }
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
  const std::unique_ptr<Dwfl, void (*)(Dwfl*)> owner(dwfl_begin(&callbacks),
                                                     &dwfl_end);
  Dwfl* const dwfl = owner.get();
  if (dwfl == nullptr) return Fail("libdw", dwfl_errmsg(-1));
  if (const int error = dwfl_linux_proc_report(dwfl, pid); error != 0) {
    return Fail("reading its memory map",
                error > 0 ? strerror(error) : dwfl_errmsg(-1));
  }
  if (dwfl_report_end(dwfl, nullptr, nullptr) != 0 ||
      dwfl_linux_proc_attach(dwfl, pid, /*assume_ptrace_stopped=*/true) != 0) {
    return Fail("libdw", dwfl_errmsg(-1));
  }
  std::vector<Stack> stacks;
  for (const pid_t thread : stopped) {
    Stack stack{thread, {}};
    // Ends with an error behind the last frame of most stacks.
    (void)dwfl_getthread_frames(dwfl, thread, AddFrame, &stack);
    (void)ptrace(PTRACE_DETACH, thread, nullptr, nullptr);
    stacks.push_back(std::move(stack));
  }
  Print(dwfl, stacks, program);
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
