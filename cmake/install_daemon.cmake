# Runs at install time: the units of LOCKSTEP_DAEMON with the paths they are
# installed with, and its example configuration. Where the prefix is /usr the
# configuration is in /etc, else in PREFIX/etc.
set(LOCKSTEP_BIN_DIR "${CMAKE_INSTALL_PREFIX}/bin")
set(LOCKSTEP_LIBEXEC_DIR "${CMAKE_INSTALL_PREFIX}/libexec/lockstep")
set(LOCKSTEP_DOC_DIR "${CMAKE_INSTALL_PREFIX}/share/doc/lockstep-${LOCKSTEP_DAEMON}")
set(LOCKSTEP_STATE_DIR /var/lib/lockstep)
if(CMAKE_INSTALL_PREFIX STREQUAL /usr)
  set(LOCKSTEP_CONFIG_DIR /etc/lockstep)
else()
  set(LOCKSTEP_CONFIG_DIR "${CMAKE_INSTALL_PREFIX}/etc/lockstep")
endif()
set(units ${LOCKSTEP_DAEMON})
if(LOCKSTEP_DAEMON STREQUAL worker)
  list(APPEND units ranks)
endif()
foreach(name ${units})
  set(unit "${CMAKE_INSTALL_PREFIX}/lib/systemd/system/lockstep-${name}.service")
  message(STATUS "Installing: $ENV{DESTDIR}${unit}")
  configure_file("${LOCKSTEP_DEPLOY}/systemd/lockstep-${name}.service.in"
    "$ENV{DESTDIR}${unit}" @ONLY)
endforeach()
# The daemon's own, and the table that the coordinator's names.
set(configs ${LOCKSTEP_DAEMON})
if(LOCKSTEP_DAEMON STREQUAL coordinator)
  list(APPEND configs machines)
endif()
foreach(name ${configs})
  set(config "${LOCKSTEP_CONFIG_DIR}/${name}.yaml")
  # What somebody has written there is not written over.
  if(EXISTS "$ENV{DESTDIR}${config}")
    set(config "${config}.new")
  endif()
  message(STATUS "Installing: $ENV{DESTDIR}${config}")
  file(READ "${LOCKSTEP_DEPLOY}/config/${name}.yaml" text)
  string(REPLACE "\nmachines_file: /etc/lockstep/"
    "\nmachines_file: ${LOCKSTEP_CONFIG_DIR}/" text "${text}")
  file(WRITE "$ENV{DESTDIR}${config}" "${text}")
endforeach()
