// Makes one mistake on purpose, so that the build can prove its sanitizers are awake.
//
// The operands come from the command line: the compiler must not see the mistake coming.

#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>

namespace {

int read_behind_the_end(int count) {
  auto values = std::make_unique<int[]>(static_cast<std::size_t>(count));
  return values[static_cast<std::size_t>(count)];
}

int overflow(int count) { return std::numeric_limits<int>::max() - 1 + count; }

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "address") == 0) {
    return read_behind_the_end(argc);
  }
  if (argc == 2 && std::strcmp(argv[1], "undefined") == 0) {
    return overflow(argc);
  }
  std::fputs("usage: sanitizer_canary address|undefined\n", stderr);
  return 2;
}
