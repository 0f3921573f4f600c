/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Does the model hold with each copy kernel, with ordinary stores (domain process) and non-temporal ones
 * (domain pmem)? model_test.cc uses only the best kernel of this machine.
 */
#include "use_kernel.h"
#include "world.h"

namespace
{

struct Case {
    std::string kernel;
    int policy, domain;
};

std::string name_of(const Case &c)
{
    return c.kernel + rig::policy_name(c.policy) + rig::domain_name(c.domain);
}

void PrintTo(const Case &c, std::ostream *out)
{
    *out << name_of(c);
}

std::vector<Case> cases()
{
    std::vector<Case> all;
    for (const char *const *k = kernel_names(); *k; k++)
        for (int policy : {ATO_READ_LAZY, ATO_READ_GATHER})
            for (int domain : {ATO_DOMAIN_PMEM, ATO_DOMAIN_PROCESS})
                all.push_back({*k, policy, domain});
    return all;
}

class Kernel : public testing::TestWithParam<Case>
{
};

TEST_P(Kernel, HoldsTheSameAsAByteArrayAfterAnyOperations)
{
    const Case &c = GetParam();
    if (!kernel_usable(c.kernel.c_str()))
        GTEST_SKIP() << "this CPU cannot run the kernel " << c.kernel;
    SCOPED_TRACE(rig::replay());
    model::Setup setup{c.policy, c.domain, model::Commit::Journal};
    setup.prepare = [&](const void *addr) { use_kernel(addr, c.kernel.c_str()); };
    rig::Random random(rig::seed());
    for (size_t bytes : {random.within(3, 60), random.within(2u << 20, 4u << 20) | 1}) {
        SCOPED_TRACE("a file of " + std::to_string(bytes) + " bytes");
        model::World world(setup, random, bytes);
        for (unsigned i = 0; i < rig::rounds(250) && !HasFailure(); i++)
            world.step();
        world.compare_all();
        if (HasFailure())
            return;
        world.finish();
    }
}

INSTANTIATE_TEST_SUITE_P(All, Kernel, testing::ValuesIn(cases()),
                         [](const auto &info) { return name_of(info.param); });

} // namespace
