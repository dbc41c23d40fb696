final class AdminScenarios {
    private AdminScenarios() {}

    static void registerAll() {}
}
