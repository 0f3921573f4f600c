// SPDX-License-Identifier: BSD-3-Clause
//
// The fixture of the tests of pairings, and their scenes.
#ifndef ATO_TEST_HAZARDS_PAIRING_LAB_H
#define ATO_TEST_HAZARDS_PAIRING_LAB_H

#include "hazards/lab.h"
#include "scene.h"

#include <cstdlib>

namespace scene
{

class Pairing : public Stage
{
  protected:
    ~Pairing() override
    {
        unsetenv("ATO_REFLECTION_DIR");
    }
};

// Each scene is one case of IsRightOrAClearError (pairing_test.cc).
class PairingScene : public Pairing, public testing::WithParamInterface<Scene>
{
};

constexpr unsigned EITHER = ATO_PREFER_FILE | ATO_PREFER_REFLECTION;

} // namespace scene

#endif
