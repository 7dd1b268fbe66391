// Runs the C++ tests of the kernels; those in other files register themselves. No Python here.
#include "check.hpp"

int main() {
  int passed = 0, failed = 0;
  for (const testing::Test& test : testing::tests()) {
    testing::failures = 0;
    test.run();
    if (testing::failures == 0) {
      ++passed;
    } else {
      ++failed;
      std::printf("FAILED %s\n", test.name);
    }
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 && passed > 0 ? 0 : 1;
}
