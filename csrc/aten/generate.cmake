# TRIDENT_ATEN_SOURCES: the typed shims of csrc/aten/operators.txt, one file per section of that list,
# generated for the torch that third_party/torch.cmake found.
set(TRIDENT_ATEN_DIR ${CMAKE_CURRENT_LIST_DIR})
set(TRIDENT_ATEN_OUTPUT ${CMAKE_BINARY_DIR}/aten)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${TRIDENT_ATEN_DIR}/operators.txt)

file(STRINGS ${TRIDENT_ATEN_DIR}/operators.txt TRIDENT_ATEN_SECTIONS REGEX "^\\[[a-z_]+\\]$")
set(TRIDENT_ATEN_SOURCES ${TRIDENT_ATEN_OUTPUT}/typed_ops.cpp)
foreach(section IN LISTS TRIDENT_ATEN_SECTIONS)
  string(REGEX REPLACE "[][]" "" section "${section}")
  list(APPEND TRIDENT_ATEN_SOURCES ${TRIDENT_ATEN_OUTPUT}/${section}.cpp)
endforeach()

get_filename_component(TRIDENT_TORCH_SITE ${TRIDENT_TORCH_DIR} DIRECTORY)
add_custom_command(
  OUTPUT ${TRIDENT_ATEN_SOURCES}
  COMMAND ${CMAKE_COMMAND} -E env --unset=PYTHONSAFEPATH TRIDENT_TORCH_SITE=${TRIDENT_TORCH_SITE}
    ${Python_EXECUTABLE} -B ${TRIDENT_ATEN_DIR}/generate.py
    --operators ${TRIDENT_ATEN_DIR}/operators.txt
    --torch-dir ${TRIDENT_TORCH_DIR}
    --output ${TRIDENT_ATEN_OUTPUT}
    $<$<BOOL:${TRIDENT_WITH_CUDA}>:--cuda>
  DEPENDS
    ${TRIDENT_ATEN_DIR}/generate.py
    ${TRIDENT_ATEN_DIR}/schema_types.py
    ${TRIDENT_ATEN_DIR}/operators.txt
  COMMENT "Generating typed ATen shims"
  COMMAND_EXPAND_LISTS
  VERBATIM)

# The shims are thin: -O1 is as fast as -O2 here and compiles sooner.
set_source_files_properties(${TRIDENT_ATEN_SOURCES} PROPERTIES COMPILE_OPTIONS -O1)
