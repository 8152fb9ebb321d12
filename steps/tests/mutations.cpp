// Which mutant of a kernel runs: FLASH_MUTANT in the environment. See scripts/lab/mutations.py.
#include <cstdlib>

bool flash_mutant(int number);

bool flash_mutant(int number) {
    static const int chosen = [] {
        const char* const text = std::getenv("FLASH_MUTANT");
        return text == nullptr ? 0 : std::atoi(text);
    }();
    return number == chosen;
}
