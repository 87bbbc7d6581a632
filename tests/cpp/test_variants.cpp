// Kernel variants that are chosen per call: the table, and launches over a driver that records.
#include "errors.h"
#include "host/variants.h"

#include <Python.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "fake_cuda.h"

namespace trident::test {
namespace {

using driver::CudaKernel;
using host::Variant;
using host::Variants;
using host::VaryingLaunch;

const uint32_t kGrid[3] = {5, 1, 1};

// A program with one launch of three parameters: a pointer, a count and an output.
const trident_param kParams[] = {
    {TRIDENT_PARAM_INPUT, 1}, {TRIDENT_PARAM_RUNTIME, 0}, {TRIDENT_PARAM_OUTPUT, 0}};
const trident_launch_record kLaunches[] = {{0, 3, kParams, {1, 1, 1}, 2},
                                           {0, 3, kParams, {1, 1, 1}, 0}};

trident_program program() {
  trident_program made{};
  made.name = "varying";
  made.device = {1, 0};  // CUDA
  made.num_inputs = 2;
  made.num_outputs = 1;
  made.num_launches = 2;
  made.launches = kLaunches;
  made.choose = [](const int64_t*, uint64_t*) {};
  return made;
}

class VariantTable : public ::testing::Test {
 protected:
  Variant variant(std::vector<std::string> types, std::vector<uint32_t> params) {
    const driver::CudaKernelSpec spec{
        .cubin = "cubin with " + std::to_string(params.size()) + " parameters",
        .name = "kernel",
        .label = "add",
        .params = std::move(types)};
    return {std::make_shared<CudaKernel>(*library, spec), std::move(params)};
  }
  Variant general() { return variant({"*fp32", "i32", "*fp32"}, {0, 1, 2}); }
  Variant without_count() { return variant({"*fp32", "*fp32"}, {0, 2}); }

  FakeCuda fake;
  std::unique_ptr<driver::CudaLibrary> library = fake.library();
  trident_program description = program();
  Variants variants{description, 0};
  std::vector<uint64_t> values = {0x1000, 7, 0x2000};
};

TEST_F(VariantTable, each_variant_gets_the_parameters_that_it_takes) {
  variants.add(0, 0, general());
  variants.add(0, 1, without_count());
  VaryingLaunch launch(variants, 0, 0, values.data());

  EXPECT_FALSE(launch.choose(0));
  fake.expect_params(3);
  launch.run(kGrid, nullptr);
  EXPECT_FALSE(launch.choose(1));
  fake.expect_params(2);
  launch.run(kGrid, nullptr);
  EXPECT_FALSE(launch.choose(0));
  values[1] = 9;  // what is written before a launch arrives
  fake.expect_params(3);
  launch.run(kGrid, nullptr);

  ASSERT_EQ(fake.launches().size(), 3u);
  EXPECT_EQ(fake.launches()[0].values, (std::vector<uint64_t>{0x1000, 7, 0x2000, 0, 0}));
  EXPECT_EQ(fake.launches()[1].values, (std::vector<uint64_t>{0x1000, 0x2000, 0, 0}));
  EXPECT_EQ(fake.launches()[2].values, (std::vector<uint64_t>{0x1000, 9, 0x2000, 0, 0}));
  EXPECT_NE(fake.launches()[0].function, fake.launches()[1].function);
  EXPECT_EQ(fake.launches()[0].function, fake.launches()[2].function);
}

TEST_F(VariantTable, a_missing_variant_is_made_once_for_all_frames) {
  std::vector<uint64_t> asked;
  variants.set_source([&](uint32_t launch, uint64_t choice) {
    EXPECT_EQ(launch, 0u);
    asked.push_back(choice);
    return general();
  });
  VaryingLaunch one(variants, 0, 0, values.data()), other(variants, 0, 0, values.data());
  EXPECT_TRUE(one.choose(2));
  EXPECT_FALSE(one.choose(2));
  EXPECT_FALSE(other.choose(2));
  EXPECT_EQ(asked, std::vector<uint64_t>{2});
  EXPECT_EQ(variants.size(), 1u);
}

TEST_F(VariantTable, lookups_go_on_while_a_variant_is_compiled) {
  variants.add(0, 0, general());
  std::atomic<bool> compiling = false, served = false;
  variants.set_source([&](uint32_t, uint64_t) {
    compiling = true;
    while (!served) std::this_thread::yield();  // ends only if others are served meanwhile
    return without_count();
  });
  std::thread other([&] {
    VaryingLaunch launch(variants, 0, 0, values.data());
    launch.choose(1);
  });
  while (!compiling) std::this_thread::yield();
  EXPECT_NE(variants.find(0, 0), nullptr);
  EXPECT_EQ(variants.find(0, 1), nullptr);
  served = true;
  other.join();
  EXPECT_NE(variants.find(0, 1), nullptr);
}

TEST_F(VariantTable, the_first_of_two_publications_stays) {
  const Variant& first = variants.add(0, 3, general());
  EXPECT_EQ(&variants.add(0, 3, without_count()), &first);
  EXPECT_EQ(first.params.size(), 3u);
}

TEST_F(VariantTable, a_source_that_fails_leaves_the_table_as_it_was) {
  bool broken = true;
  variants.set_source([&](uint32_t, uint64_t) -> Variant {
    TORCH_CHECK(!broken, "ptxas is missing");
    return general();
  });
  VaryingLaunch launch(variants, 0, 0, values.data());
  EXPECT_NE(message_of([&] { launch.choose(0); }).find("ptxas"), std::string::npos);
  EXPECT_EQ(variants.size(), 0u);
  broken = false;
  EXPECT_TRUE(launch.choose(0));
  fake.expect_params(3);
  launch.run(kGrid, nullptr);
  EXPECT_EQ(fake.launches().size(), 1u);
}

TEST_F(VariantTable, what_does_not_fit_the_launch_is_refused) {
  const auto refused = [&](uint32_t launch, Variant variant) {
    return message_of([&] { variants.add(launch, 0, std::move(variant)); });
  };
  EXPECT_NE(refused(0, variant({"*fp32"}, {0, 1})).find("passes 2 parameters"), std::string::npos);
  EXPECT_NE(refused(0, variant({"*fp32"}, {3})).find("no parameter 3"), std::string::npos);
  EXPECT_NE(refused(1, general()).find("whose kernel varies"), std::string::npos);
  EXPECT_NE(refused(0, {nullptr, {}}).find("does not"), std::string::npos);
  EXPECT_NE(refused(0, variant({"i64"}, {2})).find("takes an address in output 0 of 1"),
            std::string::npos);
  description.num_inputs = 1;
  EXPECT_NE(refused(0, general()).find("takes an address in input 1 of 1"), std::string::npos);
  VaryingLaunch launch(variants, 0, 0, values.data());
  EXPECT_NE(message_of([&] { launch.choose(9); }).find("nothing compiles it"), std::string::npos);
}

}  // namespace
}  // namespace trident::test
