# Run by cpack, which may be given another CPACK_DEBIAN_PACKAGE_RELEASE than
# the build was configured with.
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS
  "liblockstep0 (= ${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}), ${CPACK_DEBIAN_DEV_PACKAGE_DEPENDS}")
