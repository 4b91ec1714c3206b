#include "common/model/image_name.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep {
namespace {

TEST(ImageNameTest, TakesWhatRegistriesHave) {
  for (const char* image :
       {"busybox", "busybox:1.36", "docker:24-dind", "library/busybox",
        "localhost/x:1", "localhost:5000/a/b:1", "gcr.io/p/image-name_x.y:Tag",
        "reg.example:5000/x", "[fd00::1]:5000/x:1", "a__b", "a---b",
        "reg.example/dir:1",
        "x@sha256:"
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "x:1@sha256:"
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}) {
    EXPECT_TRUE(CheckImageName(image).ok()) << CheckImageName(image);
  }
}

TEST(ImageNameTest, RefusesWhatEnginesReadFromTheHost) {
  for (const char* image :
       {"docker-archive:/root/x.tar", "docker-archive:x.tar", "dir:/etc",
        "dir:etc", "dir:5000/x", "oci:/x", "oci:x", "oci-archive:/x.tar",
        "containers-storage:x", "docker-daemon:x:1", "docker://busybox",
        "ostree:x", "sif:x", "tarball:x", "/root/x", "./x", "../x",
        "http://x/y", "x:../y"}) {
    EXPECT_EQ(CheckImageName(image).code(), StatusCode::kInvalidArgument)
        << image;
  }
}

TEST(ImageNameTest, RefusesWhatIsNoName) {
  for (const char* image :
       {"", "-x", "--privileged", "a b", "a\nb", "A", "x:", "x@", "x@sha256:12",
        "x/", "/x", "x//y", "x:-1", "a..b", "\xff"}) {
    EXPECT_FALSE(CheckImageName(image).ok()) << image;
  }
  EXPECT_FALSE(CheckImageName(std::string(1 << 20, 'x')).ok());
  EXPECT_FALSE(CheckImageName(std::string_view("x\0y", 3)).ok());
}

}  // namespace
}  // namespace lockstep
