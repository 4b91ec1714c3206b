#include "client/package/pack.h"

#include <archive.h>
#include <archive_entry.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <map>

#include "common/base/file.h"

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class PackTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-test-XXXXXX";
    dir_ = mkdtemp(name);
    Write("trainer/__init__.py", "");
    Write("trainer/task.py", "print('hello')\n");
  }
  void TearDown() override { RealFileSystem()->RemoveAll(dir_).IgnoreError(); }

  void Write(const std::string& path, const std::string& text,
             mode_t mode = 0644) {
    const std::string full = dir_ + "/" + path;
    FileSystem* const files = RealFileSystem();
    ASSERT_TRUE(files->MakeDirs(full.substr(0, full.rfind('/'))).ok());
    ASSERT_TRUE(files->WriteAtomic(full, text, mode).ok());
    ASSERT_EQ(chmod(full.c_str(), mode), 0);
  }
  void Link(const std::string& target, const std::string& path) {
    ASSERT_EQ(symlink(target.c_str(), (dir_ + "/" + path).c_str()), 0);
  }
  StatusOr<PackedPackage> Pack(PackOptions options = {}) {
    options.prefix = "trainer";
    return PackFolder(dir_ + "/trainer", options);
  }
  void ExpectRefused(const std::string& name, const std::string& why) {
    const auto packed = Pack();
    EXPECT_EQ(packed.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(packed.status()), HasSubstr("/trainer/" + name + " "));
    EXPECT_THAT(Message(packed.status()), HasSubstr(why));
  }

  static std::string Bytes(const PackedPackage& packed) {
    std::string bytes(packed.package.bytes, '\0');
    const auto got = ReadPackage(packed, 0, bytes.data(), bytes.size());
    EXPECT_TRUE(got.ok() && *got == bytes.size());
    return bytes;
  }
  // Name -> content, "-> TARGET" of links, "/" of folders.
  static std::map<std::string, std::string> Unpack(const std::string& bytes) {
    std::map<std::string, std::string> out;
    archive* const a = archive_read_new();
    archive_read_support_filter_gzip(a);
    archive_read_support_format_tar(a);
    EXPECT_EQ(archive_read_open_memory(a, bytes.data(), bytes.size()), 0);
    archive_entry* e = nullptr;
    while (archive_read_next_header(a, &e) == ARCHIVE_OK) {
      std::string& content = out[archive_entry_pathname(e)];
      EXPECT_EQ(archive_entry_mtime(e), 0);
      EXPECT_EQ(archive_entry_uid(e), 0);
      if (archive_entry_filetype(e) == AE_IFDIR) content = "/";
      if (archive_entry_symlink(e)) {
        content = std::string("-> ") + archive_entry_symlink(e);
      }
      if (archive_entry_filetype(e) == AE_IFREG) {
        content.resize(archive_entry_size(e));
        EXPECT_EQ(archive_read_data(a, content.data(), content.size()),
                  static_cast<la_ssize_t>(content.size()));
        if (archive_entry_perm(e) == 0755) content += " (executable)";
      }
    }
    archive_read_free(a);
    return out;
  }

  std::string dir_;
};

TEST_F(PackTest, PacksFilesFoldersAndLinksUnderTheName) {
  Write("trainer/run.sh", "x", 0700);
  Write("trainer/data/\xc3\xa4.txt", "y");
  Link("task.py", "trainer/main.py");
  const auto packed = Pack();
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_THAT(Unpack(Bytes(*packed)),
              UnorderedElementsAre(Pair("trainer/__init__.py", ""),
                                   Pair("trainer/task.py", "print('hello')\n"),
                                   Pair("trainer/run.sh", "x (executable)"),
                                   Pair("trainer/data/", "/"),
                                   Pair("trainer/data/\xc3\xa4.txt", "y"),
                                   Pair("trainer/main.py", "-> task.py")));
  EXPECT_EQ(packed->package.file_name, "trainer.tar.gz");
  EXPECT_EQ(packed->package.format, PackageFormat::kTree);
  EXPECT_EQ(packed->entries, 6);
  EXPECT_EQ(packed->unpacked_bytes, 17);
}

TEST_F(PackTest, TheSameContentGivesTheSameBytes) {
  const auto first = Pack();
  ASSERT_TRUE(first.ok()) << first.status();
  // Other times, modes and neighbours; and another folder of that name.
  Write("trainer/task.py", "print('hello')\n", 0600);
  Write("trainer/__pycache__/task.cpython-311.pyc", "made later");
  const auto second = Pack();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(Bytes(*first), Bytes(*second));
  EXPECT_EQ(first->package, second->package);
  EXPECT_EQ(first->package.digest.size(), 7u + 64u);
  Write("trainer/task.py", "print('Hello')\n");
  EXPECT_NE(Pack()->package.digest, first->package.digest);
}

TEST_F(PackTest, HonoursGcloudignore) {
  Write("trainer/big.bin", "x");
  Write("trainer/tests/a_test.py", "x");
  Write("trainer/.gitignore", "tests/\n");
  Write("trainer/.gcloudignore", "*.bin\n#!include:.gitignore\n");
  const auto packed = Pack();
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_THAT(
      Unpack(Bytes(*packed)),
      UnorderedElementsAre(Pair("trainer/__init__.py", ""),
                           Pair("trainer/task.py", "print('hello')\n")));
}

TEST_F(PackTest, ItsFileNameIsOneEverywhere) {
  Write(".my code!/a.py", "");
  const auto packed = PackFolder(dir_ + "/.my code!", {});
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_EQ(packed->package.file_name, "_my_code!.tar.gz");
  EXPECT_EQ(Unpack(Bytes(*packed)).count("a.py"), 1u);
}

TEST_F(PackTest, LongNamesAreKept) {
  const std::string deep =
      "trainer/" + std::string(120, 'a') + "/" + std::string(130, 'b') + ".py";
  Write(deep, "z");
  const auto packed = Pack();
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_EQ(Unpack(Bytes(*packed)).count(deep), 1u);
}

TEST_F(PackTest, RefusesLinksThatLeave) {
  Write("secret", "x");
  for (const std::string target : {"../secret", "/etc/passwd"}) {
    Link(target, "trainer/evil");
    ExpectRefused("evil", "leaves the folder");
    ASSERT_EQ(unlink((dir_ + "/trainer/evil").c_str()), 0);
  }
  for (const std::string& target :
       {std::string("../trainer/task.py"), dir_ + "/trainer/task.py"}) {
    Link(target, "trainer/evil");
    ExpectRefused("evil", "which is outside the folder");
    ASSERT_EQ(unlink((dir_ + "/trainer/evil").c_str()), 0);
  }
  Link("nowhere", "trainer/evil");
  ExpectRefused("evil", "which does not exist");
}

TEST_F(PackTest, RefusesLinksThatLeaveThroughOthers) {
  Write("secret", "x");
  Link(".", "trainer/here");
  // By its words it stays: here/.. is the top.
  Link("here/../secret", "trainer/zevil");
  ExpectRefused("zevil", "leaves the folder");
}

TEST_F(PackTest, RefusesWhatEveryNodeWould) {
  Write("trainer/sub/x", "x");
  // It stays inside, here; there it depends on what sub is.
  Link("sub/../task.py", "trainer/around");
  ExpectRefused("around", "\"..\" after a name");
  ASSERT_EQ(unlink((dir_ + "/trainer/around").c_str()), 0);
  Link("../task.py", "trainer/sub/fine");
  EXPECT_TRUE(Pack().ok()) << Pack().status();
  // With the name above it, 64 deep and 65.
  std::string deep;
  for (int i = 0; i < 62; ++i) deep += "d/";
  Write("trainer/" + deep + "f", "x");
  EXPECT_TRUE(Pack().ok()) << Pack().status();
  Write("trainer/" + deep + "e/f", "x");
  ExpectRefused(deep + "e/f", "it is 65 folders deep");
}

TEST_F(PackTest, RefusesWhatIsNoFile) {
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  snprintf(address.sun_path, sizeof(address.sun_path), "%s/trainer/s",
           dir_.c_str());
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
            0);
  close(fd);
  ExpectRefused("s", "is a socket");
  ASSERT_EQ(unlink(address.sun_path), 0);
  ASSERT_EQ(mkfifo((dir_ + "/trainer/p").c_str(), 0600), 0);
  ExpectRefused("p", "is a pipe");
  Write("trainer/.gcloudignore", "p\n");
  EXPECT_TRUE(Pack().ok());
}

TEST_F(PackTest, RefusesNamesThatNobodyCanRead) {
  Write("trainer/a\xff.py", "");
  ExpectRefused("a\\xff.py", "not UTF-8");
}

TEST_F(PackTest, KeepsToItsLimits) {
  PackOptions options;
  options.limits.entries = 1;
  EXPECT_EQ(Pack(options).status().code(), StatusCode::kResourceExhausted);
  options.limits = {};
  options.limits.bytes = 3;
  const auto packed = Pack(options);
  EXPECT_EQ(packed.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(packed.status()), HasSubstr(".gcloudignore"));
}

TEST_F(PackTest, SaysWhatIsNotThere) {
  EXPECT_EQ(PackFolder(dir_ + "/none", {}).status().code(),
            StatusCode::kNotFound);
  EXPECT_EQ(PackFolder(dir_ + "/trainer/task.py", {}).status().code(),
            StatusCode::kInvalidArgument);
  Write("trainer/.gcloudignore", "*.py\n");
  EXPECT_THAT(Message(Pack().status()), HasSubstr("has no files"));
}

TEST_F(PackTest, Stops) {
  PackOptions options;
  options.stopped = [] { return true; };
  EXPECT_EQ(Pack(options).status().code(), StatusCode::kCancelled);
}

TEST_F(PackTest, TakesSdistsAndWheelsAsTheyAre) {
  Write("trainer-0.1.tar.gz", "\x1f\x8b rest");
  const auto sdist = OpenPackageFile(dir_ + "/trainer-0.1.tar.gz", {});
  ASSERT_TRUE(sdist.ok()) << sdist.status();
  EXPECT_EQ(sdist->package.format, PackageFormat::kSdist);
  EXPECT_EQ(sdist->package.file_name, "trainer-0.1.tar.gz");
  EXPECT_EQ(sdist->package.bytes, 7);
  EXPECT_EQ(Bytes(*sdist), "\x1f\x8b rest");
  Write("trainer-0.1-py3-none-any.whl", "PK rest");
  const auto wheel =
      OpenPackageFile(dir_ + "/trainer-0.1-py3-none-any.whl", {});
  ASSERT_TRUE(wheel.ok()) << wheel.status();
  EXPECT_EQ(wheel->package.format, PackageFormat::kWheel);
}

TEST_F(PackTest, RefusesFilesThatAreNeither) {
  const auto refused = [&](const std::string& name, const std::string& text,
                           const std::string& why) {
    Write(name, text);
    const auto package = OpenPackageFile(dir_ + "/" + name, {});
    EXPECT_EQ(package.status().code(), StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(Message(package.status()), HasSubstr(why));
  };
  refused("a.zip", "PK", "neither an sdist");
  refused("a.tar.gz", "plain", "not gzipped");
  refused("a.whl", "PK", "NAME-VERSION-PYTHON-ABI-PLATFORM.whl");
  refused("a-1-py3-none-any.whl", "", "not a zip file");
  refused("a b.tar.gz", "\x1f\x8b", "characters");
  EXPECT_THAT(Message(OpenPackageFile(dir_ + "/trainer", {}).status()),
              HasSubstr("--package-path"));
  EXPECT_EQ(OpenPackageFile(dir_ + "/none.whl", {}).status().code(),
            StatusCode::kNotFound);
}

}  // namespace
}  // namespace lockstep::cli
