# Debian packages: one per component of install.cmake.
#
#   SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) \
#     cpack --config build/release/CPackConfig.cmake -B packages
#
# With SOURCE_DATE_EPOCH set, the same build gives the same bytes.
set(DEBIAN ${PROJECT_SOURCE_DIR}/deploy/debian)
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME lockstep)
set(CPACK_PACKAGE_VENDOR "The lockstep authors")
set(CPACK_PACKAGE_CONTACT "The lockstep authors <lockstep@example.org>")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_PREFIX /usr)
# The units and /etc are not below the prefix.
set(CPACK_SET_DESTDIR ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
  WORLD_READ WORLD_EXECUTE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
# Read by cpack: what hangs on a release that is given to it.
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/cmake/package_release.cmake)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

# lockstep_package(COMPONENT NAME SECTION DEPENDS SUMMARY DESCRIPTION)
# Others of ours are depended on in the very version. CPack reads upper case.
function(lockstep_package component name section depends summary description)
  string(TOUPPER ${component} upper)
  foreach(pair
      "CPACK_DEBIAN_${upper}_PACKAGE_NAME:${name}"
      "CPACK_DEBIAN_${upper}_PACKAGE_SECTION:${section}"
      "CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS:${depends}"
      "CPACK_COMPONENT_${upper}_DISPLAY_NAME:${summary}"
      "CPACK_COMPONENT_${upper}_DESCRIPTION:${summary}\n${description}")
    string(FIND "${pair}" ":" at)
    string(SUBSTRING "${pair}" 0 ${at} variable)
    math(EXPR at "${at} + 1")
    string(SUBSTRING "${pair}" ${at} -1 value)
    set(${variable} "${value}" PARENT_SCOPE)
  endforeach()
  # What conffiles, postinst, prerm, postrm, triggers the package has.
  file(GLOB scripts ${DEBIAN}/${name}/*)
  set(CPACK_DEBIAN_${upper}_PACKAGE_CONTROL_EXTRA "${scripts}" PARENT_SCOPE)
  install(FILES ${DEBIAN}/copyright ${RENDERED}/changelog.Debian.gz
    DESTINATION share/doc/${name} COMPONENT ${component})
  list(APPEND CPACK_COMPONENTS_ALL ${component})
  set(CPACK_COMPONENTS_ALL "${CPACK_COMPONENTS_ALL}" PARENT_SCOPE)
endfunction()

# Without the time of day and name that gzip would store.
execute_process(COMMAND gzip -9nc ${DEBIAN}/changelog
  OUTPUT_FILE ${RENDERED}/changelog.Debian.gz)
set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY
  CMAKE_CONFIGURE_DEPENDS ${DEBIAN}/changelog)

set(CPACK_COMPONENTS_ALL)
set(system "systemd | systemd-standalone-sysusers, systemd | systemd-standalone-tmpfiles, init-system-helpers (>= 1.54~)")
lockstep_package(coordinator lockstep-coordinator net "${system}"
  "coordinator of a cluster that trains models synchronously"
  "The daemon that queues and places jobs, drives the worker daemons of the
cluster's hosts, keeps what it decided in SQLite, and answers clients. One
host of a cluster has it.")
lockstep_package(worker lockstep-worker net "${system}"
  "worker daemon of a cluster that trains models synchronously"
  "The daemon that runs the ranks of jobs on its host, with the small program
that holds each of them. Ranks go on while the daemon is restarted or upgraded.")
install(FILES ${DEBIAN}/lockstep-worker.lintian-overrides
  DESTINATION share/lintian/overrides RENAME lockstep-worker COMPONENT worker)
set(CPACK_DEBIAN_WORKER_PACKAGE_RECOMMENDS "lockstep-trainer, liblockstep0")
lockstep_package(cli lockstep-cli net ""
  "command line of a cluster that trains models synchronously"
  "Submits jobs, follows them, shows what goes on in the cluster and why,
makes its certificates, and packs training data.")
set(CPACK_DEBIAN_CLI_PACKAGE_SUGGESTS "lockstep-coordinator, lockstep-worker")
lockstep_package(libs liblockstep0 libs ""
  "libraries of programs that train or submit jobs with lockstep"
  "Shared libraries: one makes a C++ program a rank of a job, one submits
and follows jobs, and one has the C interface.")
set(CPACK_DEBIAN_LIBS_PACKAGE_RECOMMENDS lockstep-worker)
lockstep_package(dev lockstep-dev libdevel "libabsl-dev"
  "headers for programs that train or submit jobs with lockstep"
  "Headers, CMake package and pkg-config files of liblockstep0, and the
messages of its API.")
set(CPACK_DEBIAN_DEV_PACKAGE_SHLIBDEPS OFF)
if(TARGET lockstep-train)
  lockstep_package(trainer lockstep-trainer science ""
    "trainer of image classifiers for lockstep clusters"
    "A native job's program: trains models on packed data, on all ranks in
lockstep, with checkpoints from which a job goes on after a failure.")
  set(CPACK_DEBIAN_TRAINER_PACKAGE_DEPENDS "lockstep-worker, libopenblas0-pthread | libopenblas0")
endif()
if(TARGET collective_nccl)
  lockstep_package(nccl lockstep-nccl net lockstep-worker
    "all-reduce between GPUs for lockstep clusters"
    "The module by which ranks of native jobs all-reduce over NCCL, and the
program by which daemons check GPUs.")
endif()
# Without python3 there are no dashboards.
if(TARGET lockstep-dashboards)
  lockstep_package(monitoring lockstep-monitoring net ""
    "dashboards, alerts and runbook of lockstep clusters"
    "Grafana dashboards with an example of their provisioning, Prometheus's
recording and alerting rules with an example of its configuration, and the
runbook that has a section for each alert.")
  set(CPACK_DEBIAN_MONITORING_PACKAGE_ARCHITECTURE all)
  set(CPACK_DEBIAN_MONITORING_PACKAGE_SHLIBDEPS OFF)
  set(CPACK_DEBIAN_MONITORING_PACKAGE_SUGGESTS "prometheus, grafana")
endif()
set(CPACK_COMPONENTS_ALL "${CPACK_COMPONENTS_ALL}")
include(CPack)
