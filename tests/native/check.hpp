// A test is a function that registers itself; CHECK counts, names what failed, and goes on.
#pragma once

#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

namespace testing {

struct Test {
  const char* name;
  void (*run)();
};

inline std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

inline int failures = 0;  // of the test that is running

struct Registration {
  Registration(const char* name, void (*run)()) { tests().push_back({name, run}); }
};

template <class T>
std::string in_words(const T& value) {
  std::ostringstream words;
  words << value;
  return words.str();
}

template <class T>
std::string in_words(const std::vector<T>& values) {
  std::ostringstream words;
  words << "[";
  for (const T& value : values) words << " " << value;
  words << " ]";
  return words.str();
}

inline void fail(const char* file, int line, const std::string& what) {
  ++failures;
  if (failures <= 10) std::printf("%s:%d: %s\n", file, line, what.c_str());
}

template <class A, class B>
void check_equal(const A& a, const B& b, const char* words, const char* file, int line) {
  if (!(a == b)) fail(file, line, std::string(words) + ": " + in_words(a) + " != " + in_words(b));
}

}  // namespace testing

#define TEST(name)                                                             \
  static void name();                                                          \
  static const ::testing::Registration registration_of_##name(#name, &name);   \
  static void name()

#define CHECK(condition)                                                       \
  do {                                                                         \
    if (!(condition)) ::testing::fail(__FILE__, __LINE__, #condition);         \
  } while (false)

#define CHECK_EQUAL(a, b) ::testing::check_equal((a), (b), #a " == " #b, __FILE__, __LINE__)
