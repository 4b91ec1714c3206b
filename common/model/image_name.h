// Names of container images in registries.
#ifndef LOCKSTEP_COMMON_MODEL_IMAGE_NAME_H_
#define LOCKSTEP_COMMON_MODEL_IMAGE_NAME_H_

#include <string_view>

#include "common/base/status.h"

namespace lockstep {

// InvalidArgument unless `image` is [HOST[:PORT]/]NAME[:TAG][@DIGEST], the
// grammar of references (https://pkg.go.dev/github.com/distribution/reference).
// Engines also accept files of the host, by the prefixes of
// containers-transports(5) ("docker-archive:/x.tar", "dir:x"), and read them
// with the engine's rights. An ambiguous name is rejected.
Status CheckImageName(std::string_view image);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MODEL_IMAGE_NAME_H_
