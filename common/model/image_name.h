// Names of container images, as registries have them.
#ifndef LOCKSTEP_COMMON_MODEL_IMAGE_NAME_H_
#define LOCKSTEP_COMMON_MODEL_IMAGE_NAME_H_

#include <string_view>

#include "common/base/status.h"

namespace lockstep {

// InvalidArgument for all but [HOST[:PORT]/]NAME[:TAG][@DIGEST], the grammar of
// references (https://pkg.go.dev/github.com/distribution/reference). Engines
// take more: files of the host, by the prefixes of containers-transports(5)
// ("docker-archive:/x.tar", "dir:x"), read with the engine's rights. What a
// name and such a prefix could both mean is refused.
Status CheckImageName(std::string_view image);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MODEL_IMAGE_NAME_H_
