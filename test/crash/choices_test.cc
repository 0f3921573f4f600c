// SPDX-License-Identifier: BSD-3-Clause
//
// Which crashes of a moment are explored? All of them if they are few; else the regular ones and
// random ones. The same number is always the same crash.
#include "choices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

using namespace crash;

namespace
{

std::vector<Unit> units_of(size_t n, uint32_t choices, size_t to_a_group = 1)
{
    std::vector<Unit> units;
    for (size_t i = 0; i < n; i++)
        units.push_back({choices, 1000 + i / to_a_group});
    return units;
}

using Choice = std::vector<uint32_t>;

TEST(ChoicesOfFew, AreEachListedOnceFromNothingToEverything)
{
    std::vector<Unit> units = {{2, 1}, {3, 1}, {4, 2}};
    Choices choices(units, 5);
    ASSERT_EQ(choices.all(), 24u);
    std::set<Choice> all;
    for (uint64_t i = 0; i < 24; i++) {
        Choice c = choices.pick(i);
        for (size_t u = 0; u < units.size(); u++)
            EXPECT_LT(c[u], units[u].choices);
        all.insert(c);
    }
    EXPECT_EQ(all.size(), 24u);
    EXPECT_EQ(choices.pick(0), Choice({0, 0, 0}));
    EXPECT_EQ(choices.pick(23), Choice({1, 2, 3}));
}

TEST(ChoicesOfFew, WithoutUnitsThereIsOneCrash)
{
    std::vector<Unit> units;
    Choices choices(units, 5);
    EXPECT_EQ(choices.all(), 1u);
    EXPECT_EQ(choices.pick(0), Choice());
    EXPECT_EQ(choices.numbers(100), std::vector<uint64_t>({0}));
}

TEST(ChoicesOfFew, AreExhaustiveUpToTheLimitAndNotBeyond)
{
    std::vector<Unit> twelve = units_of(12, 2), thirteen = units_of(13, 2),
                      many = units_of(200, 1000);
    EXPECT_EQ(Choices(twelve, 5).all(), Choices::EXHAUSTIVE);
    EXPECT_EQ(Choices(thirteen, 5).all(), 0u);
    EXPECT_EQ(Choices(many, 5).all(), 0u);
}

TEST(ChoicesOfMany, StartWithBothExtremesThenEachGroupItsInverseAndPairs)
{
    constexpr size_t GROUPS = 7;
    std::vector<Unit> units = units_of(2 * GROUPS, 3, 2);
    Choices choices(units, 5), otherwise(units, 6);
    ASSERT_EQ(choices.all(), 0u);
    auto only = [&](const std::set<size_t> &groups) {
        Choice c(units.size());
        for (size_t g : groups)
            c[2 * g] = c[2 * g + 1] = 2;
        return c;
    };
    std::set<Choice> singles = {only({}), Choice(units.size(), 2)}, pairs, found;
    for (size_t a = 0; a < GROUPS; a++) {
        Choice inverse(units.size(), 2);
        inverse[2 * a] = inverse[2 * a + 1] = 0;
        singles.insert(only({a}));
        singles.insert(inverse);
        for (size_t b = a + 1; b < GROUPS; b++)
            pairs.insert(only({a, b}));
    }
    EXPECT_EQ(choices.pick(0), only({}));
    EXPECT_EQ(choices.pick(1), Choice(units.size(), 2));
    constexpr uint64_t SINGLES = 2 + 2 * GROUPS, PAIRS = GROUPS * (GROUPS - 1) / 2;
    for (uint64_t i = 0; i < SINGLES; i++)
        found.insert(choices.pick(i));
    EXPECT_EQ(found, singles);
    found.clear();
    for (uint64_t i = SINGLES; i < SINGLES + PAIRS; i++)
        found.insert(choices.pick(i));
    EXPECT_EQ(found, pairs);
    // These do not depend on the seed; the later ones do.
    for (uint64_t i = 0; i < SINGLES + PAIRS; i++)
        EXPECT_EQ(choices.pick(i), otherwise.pick(i)) << i;
    int others = 0;
    for (uint64_t i = SINGLES + PAIRS; i < SINGLES + PAIRS + 10; i++)
        others += choices.pick(i) != otherwise.pick(i);
    EXPECT_GT(others, 5);
}

TEST(ChoicesOfMany, HaveNoPairsIfThereAreMoreThanFortyGroups)
{
    for (size_t groups : {40, 41}) {
        std::vector<Unit> units = units_of(groups, 2);
        Choices choices(units, 5);
        auto kept = [&](uint64_t number) {
            Choice c = choices.pick(number);
            return std::count(c.begin(), c.end(), 1u);
        };
        uint64_t behind = 2 + 2 * groups;
        int pairs = 0;
        for (uint64_t i = behind; i < behind + 780; i++)
            pairs += kept(i) == 2;
        if (groups == 40)
            EXPECT_EQ(pairs, 780);
        else
            EXPECT_LT(pairs, 390);
    }
}

TEST(ChoicesOfMany, KeepTheMeaningOfANumberForAnyLimit)
{
    std::vector<Unit> units = units_of(30, 3, 2);
    Choices a(units, 5), b(units, 5), other(units, 6);
    std::vector<uint64_t> few = a.numbers(20), more = b.numbers(2000);
    std::set<Choice> all;
    int differ = 0;
    for (uint64_t n : more) {
        Choice c = b.pick(n);
        all.insert(c);
        EXPECT_EQ(c, a.pick(n));
        differ += c != other.pick(n);
        for (size_t u = 0; u < units.size(); u++)
            ASSERT_LT(c[u], units[u].choices);
    }
    EXPECT_GT(differ, 1000);
    EXPECT_GT(all.size(), 1500u);
    EXPECT_EQ(few, b.numbers(20));
}

TEST(ChoicesOfMany, IncludeRandomCrashesWithinAUnit)
{
    std::vector<Unit> units = units_of(20, 3);
    Choices choices(units, 5);
    std::set<uint32_t> seen;
    for (uint64_t i = 1000; i < 1100; i++)
        for (uint32_t c : choices.pick(i))
            seen.insert(c);
    EXPECT_EQ(seen, std::set<uint32_t>({0, 1, 2}));
}

TEST(ChoicesToLookAt, AreAllDifferentWithBothExtremesAndNoMoreThanAsked)
{
    std::vector<Unit> few = units_of(10, 2), many = units_of(30, 3);
    for (uint64_t limit : {2, 3, 10, 500, 1023, 1024, 5000}) {
        SCOPED_TRACE(limit);
        for (const std::vector<Unit> *units : {&few, &many}) {
            Choices choices(*units, 5);
            std::vector<uint64_t> numbers = choices.numbers(limit);
            std::set<uint64_t> set(numbers.begin(), numbers.end());
            EXPECT_EQ(set.size(), numbers.size());
            EXPECT_EQ(numbers.size(), units == &few ? std::min<uint64_t>(limit, 1024) : limit);
            EXPECT_TRUE(set.count(0));
            EXPECT_TRUE(set.count(units == &few ? 1023 : 1));
            EXPECT_LT(units == &few ? *set.rbegin() : 0, 1024u);
        }
    }
}

TEST(ChoicesToLookAt, IncludeRegularAndRandomCrashes)
{
    std::vector<Unit> many = units_of(30, 3);
    uint64_t regular = 2 + 2 * 30 + 30 * 29 / 2;
    Choices choices(many, 5);
    std::vector<uint64_t> numbers = choices.numbers(200);
    long n = std::count_if(numbers.begin(), numbers.end(), [&](uint64_t i) { return i < regular; });
    EXPECT_GT(n, 90);
    EXPECT_LT(n, 110);
    EXPECT_NE(numbers, Choices(many, 6).numbers(200));
    numbers = choices.numbers(regular + 10);
    for (uint64_t i = 0; i < regular + 10; i++)
        ASSERT_EQ(numbers[i], i);
}

} // namespace
