// A small file system of its own, for tests of full disks.
#ifndef LOCKSTEP_TESTS_SUPPORT_SMALL_DISK_H_
#define LOCKSTEP_TESTS_SUPPORT_SMALL_DISK_H_

#include <sys/mount.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace lockstep {

// Mounted at a directory while it lives. Needs root.
class SmallDisk {
 public:
  // `size` is tmpfs's: "1m".
  SmallDisk(const std::string& path, const std::string& size) : path_(path) {
    std::filesystem::create_directories(path);
    mounted_ = ::mount("tmpfs", path.c_str(), "tmpfs", 0,
                       ("size=" + size).c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  bool mounted() const { return mounted_; }
  // Until nothing more fits.
  void Fill() {
    std::ofstream file(path_ + "/filler", std::ios::app);
    for (const size_t bytes : {size_t{1} << 20, size_t{1} << 10}) {
      const std::string block(bytes, 'x');
      while (file.write(block.data(), static_cast<std::streamsize>(bytes)) &&
             file.flush()) {
      }
      file.clear();
    }
  }
  void Free() { std::filesystem::remove(path_ + "/filler"); }

 private:
  const std::string path_;
  bool mounted_ = false;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_SUPPORT_SMALL_DISK_H_
