# pybind11 of the interpreter's environment.
execute_process(COMMAND ${Python_EXECUTABLE} -m pybind11 --cmakedir
  OUTPUT_VARIABLE pybind11_DIR OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE TRIDENT_PYBIND11_STATUS)
if(NOT TRIDENT_PYBIND11_STATUS EQUAL 0)
  message(FATAL_ERROR "pybind11 is missing. Run: pip install pybind11")
endif()
set(PYBIND11_FINDPYTHON ON)
find_package(pybind11 CONFIG REQUIRED)
