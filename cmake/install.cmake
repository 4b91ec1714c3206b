# `cmake --install`: programs in bin, what programs start in libexec/lockstep,
# what they load in lib/lockstep, as they look for it. Each file belongs to a
# component, which is a package (package.cmake): coordinator, worker, trainer,
# nccl, cli, libs, dev, monitoring (of deploy/grafana and deploy/prometheus).
#
# A build with sanitizers is for tests and is not installed.
if(NOT LOCKSTEP_GRPC OR LOCKSTEP_SANITIZE)
  return()
endif()
include(CMakePackageConfigHelpers)
add_subdirectory(${PROJECT_SOURCE_DIR}/sdk ${PROJECT_BINARY_DIR}/sdk)
set(DEPLOY ${PROJECT_SOURCE_DIR}/deploy)
set(RENDERED ${PROJECT_BINARY_DIR}/deploy)

# ---- Programs and modules ---------------------------------------------------
# A target that this build leaves out (no LibTorch, no NCCL) is left out.
function(lockstep_install_program target component dir)
  if(TARGET ${target})
    install(TARGETS ${target} RUNTIME DESTINATION ${dir}
      COMPONENT ${component})
  endif()
endfunction()
lockstep_install_program(lockstep-coordinator coordinator bin)
lockstep_install_program(lockstep-worker worker bin)
lockstep_install_program(lockstep-bench worker bin)
lockstep_install_program(lockstep-shim worker libexec/lockstep)
lockstep_install_program(lockstep-stacks worker libexec/lockstep)
lockstep_install_program(lockstep-gpu-check nccl libexec/lockstep)
lockstep_install_program(lockstep-train trainer bin)
lockstep_install_program(lockstep cli bin)
lockstep_install_program(lockstep-data cli bin)
# lib, not the directory of the architecture's libraries: programs look for
# ../lib/lockstep, wherever they are, and --prefix may move everything.
if(TARGET collective_nccl)
  install(TARGETS collective_nccl
    LIBRARY DESTINATION lib/lockstep COMPONENT nccl)
endif()

# ---- Units and configuration ------------------------------------------------
foreach(daemon coordinator worker)
  # Written at install time, when the prefix is known for good.
  install(CODE "set(LOCKSTEP_DAEMON ${daemon})
    set(LOCKSTEP_DEPLOY \"${DEPLOY}\")
    include(\"${PROJECT_SOURCE_DIR}/cmake/install_daemon.cmake\")"
    COMPONENT ${daemon})
  install(FILES ${DEPLOY}/systemd/sysusers-${daemon}.conf
    DESTINATION lib/sysusers.d RENAME lockstep-${daemon}.conf
    COMPONENT ${daemon})
  install(FILES ${DEPLOY}/systemd/tmpfiles-${daemon}.conf
    DESTINATION lib/tmpfiles.d RENAME lockstep-${daemon}.conf
    COMPONENT ${daemon})
  # What the unit names.
  install(FILES ${PROJECT_SOURCE_DIR}/docs/install.md
    DESTINATION share/doc/lockstep-${daemon} COMPONENT ${daemon})
  install(FILES ${DEPLOY}/config/web-config.yml
    DESTINATION share/doc/lockstep-${daemon}/examples COMPONENT ${daemon})
endforeach()

# ---- Manual and completion --------------------------------------------------
# Both out of the programs themselves, so that they say what --help says.
if(TARGET man)
  add_custom_target(lockstep_pages ALL)
  add_dependencies(lockstep_pages man)
  foreach(page lockstep-coordinator.8:coordinator lockstep-worker.8:worker
      lockstep-bench.1:worker
      lockstep-train.1:trainer lockstep-data.1:cli lockstep.1:cli)
    string(REGEX MATCH "(.*)[.](.):(.*)" page ${page})
    if(TARGET ${CMAKE_MATCH_1})
      install(FILES
        ${PROJECT_BINARY_DIR}/man/${CMAKE_MATCH_1}.${CMAKE_MATCH_2}.gz
        DESTINATION share/man/man${CMAKE_MATCH_2}
        COMPONENT ${CMAKE_MATCH_3})
    endif()
  endforeach()
endif()
set(completions)
foreach(pair bash:bash-completion/completions/lockstep
    zsh:zsh/vendor-completions/_lockstep
    fish:fish/vendor_completions.d/lockstep.fish)
  string(REGEX MATCH "(.*):(.*)/(.*)" pair ${pair})
  set(file ${PROJECT_BINARY_DIR}/completion/${CMAKE_MATCH_1}/${CMAKE_MATCH_3})
  add_custom_command(OUTPUT ${file}
    COMMAND ${CMAKE_COMMAND} -E make_directory
      ${PROJECT_BINARY_DIR}/completion/${CMAKE_MATCH_1}
    COMMAND lockstep completion ${CMAKE_MATCH_1} > ${file}.tmp
    COMMAND ${CMAKE_COMMAND} -E rename ${file}.tmp ${file}
    DEPENDS lockstep VERBATIM)
  list(APPEND completions ${file})
  install(FILES ${file} DESTINATION share/${CMAKE_MATCH_2} COMPONENT cli)
endforeach()
add_custom_target(lockstep_completions ALL DEPENDS ${completions})
install(FILES ${PROJECT_SOURCE_DIR}/README.md
  ${PROJECT_SOURCE_DIR}/docs/install.md ${PROJECT_SOURCE_DIR}/docs/operations.md
  DESTINATION share/doc/lockstep-cli COMPONENT cli)

# ---- For programs outside ---------------------------------------------------
install(TARGETS lockstep_client lockstep_runtime EXPORT lockstepTargets
  LIBRARY DESTINATION lib
    COMPONENT libs NAMELINK_COMPONENT dev
  INCLUDES DESTINATION include)
# The C interface needs nothing of the above.
if(TARGET lockstep_c)
  install(TARGETS lockstep_c
    LIBRARY DESTINATION lib
      COMPONENT libs NAMELINK_COMPONENT dev)
  install(FILES ${PROJECT_SOURCE_DIR}/sdk/include/lockstep/lockstep.h
    DESTINATION include/lockstep COMPONENT dev)
endif()
install(EXPORT lockstepTargets NAMESPACE lockstep::
  DESTINATION lib/cmake/lockstep COMPONENT dev)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/lockstepConfig.cmake.in
  ${RENDERED}/lockstepConfig.cmake
  INSTALL_DESTINATION lib/cmake/lockstep)
# Before 1.0 a minor version may change what is declared.
write_basic_package_version_file(${RENDERED}/lockstepConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${RENDERED}/lockstepConfig.cmake
  ${RENDERED}/lockstepConfigVersion.cmake
  DESTINATION lib/cmake/lockstep COMPONENT dev)
install(FILES ${PROJECT_SOURCE_DIR}/sdk/include/lockstep/client.h
  ${PROJECT_SOURCE_DIR}/sdk/include/lockstep/runtime.h
  DESTINATION include/lockstep COMPONENT dev)
foreach(file options resources event task training job_spec job node
    cluster)
  install(FILES ${PROJECT_SOURCE_DIR}/proto/lockstep/v1/${file}.proto
    DESTINATION share/lockstep/proto/lockstep/v1 COMPONENT dev)
endforeach()
foreach(library client runtime)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/lockstep-${library}.pc.in
    ${RENDERED}/lockstep-${library}.pc @ONLY)
  install(FILES ${RENDERED}/lockstep-${library}.pc
    DESTINATION lib/pkgconfig COMPONENT dev)
endforeach()

include(${PROJECT_SOURCE_DIR}/cmake/package.cmake)
