# The torch that is installed for the interpreter found above, as the interface target trident_torch.
# pip hides it from an isolated build by way of the environment (PYTHONPATH), which -I leaves aside.
foreach(isolation "" -I)
  execute_process(
    COMMAND ${Python_EXECUTABLE} ${isolation} -c "import os, torch; print(os.path.dirname(torch.__file__)); print(int(torch._C._GLIBCXX_USE_CXX11_ABI)); print(next((line.split()[-1] for line in open('/proc/self/maps') if 'libstdc++.so' in line), '')); print(torch.__version__)"
    OUTPUT_VARIABLE TRIDENT_TORCH_FACTS OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE TRIDENT_TORCH_STATUS ERROR_VARIABLE TRIDENT_TORCH_ERROR)
  if(NOT TRIDENT_TORCH_ERROR MATCHES "No module named 'torch'")
    break()
  endif()
endforeach()
if(NOT TRIDENT_TORCH_STATUS EQUAL 0)
  message(FATAL_ERROR "Trident builds against the installed PyTorch, and ${Python_EXECUTABLE} cannot import it. "
                      "Install it first (pip install 'torch>=2.11,<2.15') and build with "
                      "'pip install --no-build-isolation .'.\n${TRIDENT_TORCH_ERROR}")
endif()
string(REPLACE "\n" ";" TRIDENT_TORCH_FACTS "${TRIDENT_TORCH_FACTS}")
list(GET TRIDENT_TORCH_FACTS 0 TRIDENT_TORCH_DIR)
list(GET TRIDENT_TORCH_FACTS 1 TRIDENT_TORCH_CXX11)
list(GET TRIDENT_TORCH_FACTS 2 TRIDENT_CXX_RUNTIME)
list(GET TRIDENT_TORCH_FACTS 3 TRIDENT_TORCH_VERSION)
if(TRIDENT_TORCH_VERSION VERSION_LESS 2.11 OR TRIDENT_TORCH_VERSION VERSION_GREATER_EQUAL 2.15)
  message(FATAL_ERROR "Trident supports torch 2.11 to 2.14; found ${TRIDENT_TORCH_VERSION}. "
                      "Run: pip install 'torch>=2.11,<2.15'")
endif()

add_library(trident_torch INTERFACE)
target_include_directories(trident_torch SYSTEM INTERFACE
  ${TRIDENT_TORCH_DIR}/include ${TRIDENT_TORCH_DIR}/include/torch/csrc/api/include)
target_compile_definitions(trident_torch INTERFACE _GLIBCXX_USE_CXX11_ABI=${TRIDENT_TORCH_CXX11})
set(TRIDENT_TORCH_LIBRARIES torch_python torch torch_cpu c10)
if(EXISTS ${TRIDENT_TORCH_DIR}/lib/libtorch_cuda.so)
  set(TRIDENT_WITH_CUDA ON)
  list(APPEND TRIDENT_TORCH_LIBRARIES torch_cuda c10_cuda)
  target_compile_definitions(trident_torch INTERFACE TRIDENT_WITH_CUDA=1)
endif()
foreach(library IN LISTS TRIDENT_TORCH_LIBRARIES)
  target_link_libraries(trident_torch INTERFACE ${TRIDENT_TORCH_DIR}/lib/lib${library}.so)
endforeach()
target_link_options(trident_torch INTERFACE -Wl,--no-as-needed)
# Some compilers link their own C++ runtime in, and an exception that PyTorch throws in one runtime must
# not be handled in another.
if(TRIDENT_CXX_RUNTIME)
  target_link_libraries(trident_torch INTERFACE ${TRIDENT_CXX_RUNTIME})
endif()

# Whether this torch has what csrc/guards/float32_precision.cpp would read in place.
file(STRINGS ${TRIDENT_TORCH_DIR}/include/ATen/Context.h TRIDENT_TORCH_PRECISION
  REGEX "^  (std::unordered_map<Key, Float32Precision, c10::hash<Key>> fp32_precision|Float32MatmulPrecision float32_matmul_precision|bool allow_tf32_cudnn) =")
list(LENGTH TRIDENT_TORCH_PRECISION TRIDENT_TORCH_PRECISION)
if(TRIDENT_TORCH_PRECISION EQUAL 3)
  set_source_files_properties(csrc/guards/float32_precision.cpp PROPERTIES
    COMPILE_DEFINITIONS TRIDENT_TORCH_PRECISION_MEMBERS)
endif()
